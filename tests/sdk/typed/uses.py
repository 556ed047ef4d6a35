"""Uses of the SDK for a strict type checker: lines that are marked so are refused, all others accepted."""

from dataclasses import dataclass
from typing import Any, assert_type

from topics import (
    Ack,
    AsyncQueue,
    AsyncTopic,
    AsyncTopics,
    FileCursor,
    Job,
    Lost,
    MemoryCursor,
    Queue,
    Record,
    RecordsLost,
    Restarted,
    SqliteCursor,
    Topic,
    TopicRestarted,
    Topics,
)


@dataclass
class Order:
    sku: str
    count: int


def blocking(server: Topics) -> None:
    orders = server.topic("orders", type=Order, durability="fsync", cap_records=5)
    assert_type(orders, Topic[Order])
    assert_type(server.topic("anything"), Topic[Any])
    assert_type(server.queue("jobs", type=Order, lease_ms=5_000), Queue[Order])
    assert_type(orders.write(Order("a", 1), tag="t"), Ack)
    orders.write({"sku": "a", "count": 1})  # refused
    orders.write_many([Order("a", 1), 3])  # refused
    with orders.writer(batch_bytes=1000) as writer:
        writer.write(Order("a", 1))
        writer.write("a")  # refused
    server.topic("orders", durabilty="fsync")  # refused
    server.topic("orders", durability="fsnyc")  # refused
    server.queue("jobs", lease="5s")  # refused
    orders.create(ttl="1h")  # refused
    orders.configure(cap_record=5)  # refused


def reading(server: Topics) -> None:
    orders = server.topic("orders", type=Order)
    for record in orders.read(FileCursor("billing.cursor"), ignore_loss="only the newest count"):
        assert_type(record, Record[Order])
        assert_type(record.data.count, int)
        record.seq = 7  # refused
        print(record.gap_from)  # refused
    lost: Lost = next(orders.read())  # refused
    print(lost)
    orders.read(ignore_loss=True)  # refused
    orders.tail(idle_s="5")  # refused
    orders.items(on_loss=print)  # refused
    for item in orders.items():
        print(item.data)  # refused
        match item:
            case Record():
                print(item.data.sku)
            case Lost():
                print(item.gap_from, item.gap_to)
                print(item.data)  # refused
            case Restarted():
                print(item.previous_epoch)
    try:
        orders.to_arrow()
    except RecordsLost as error:
        MemoryCursor().accept(error, why="known")
        MemoryCursor().accept(error)  # refused
        assert_type(error.gap_from, int)
    except TopicRestarted as error:
        assert_type(error.loss, Restarted)
    with FileCursor("x").transaction():  # refused
        pass
    with SqliteCursor("x", "billing").transaction() as db:
        db.execute("SELECT 1")


def work(server: Topics) -> None:
    jobs = server.queue("jobs", type=Order)
    with jobs.job(wait_s=5) as job:
        assert_type(job, Job[Order])
        print(job.data.sku)
        print(job.data.skew)  # refused
    jobs.worker(lambda job: print(job.data.sku)).run()


async def on_asyncio(server: AsyncTopics) -> None:
    orders = server.topic("orders", type=Order, durability="fsync")
    assert_type(orders, AsyncTopic[Order])
    assert_type(server.queue("jobs", type=Order), AsyncQueue[Order])
    assert_type(await orders.write(Order("a", 1)), Ack)
    orders.write(Order("a", 1))  # refused
    print(orders.write(Order("a", 1)).seq)  # refused
    for record in orders.read():  # refused
        print(record)
    async for good in orders.read():
        assert_type(good, Record[Order])
    server.topic("orders", durabilty="fsync")  # refused
    with orders.writer():  # refused
        pass
    async with orders.writer() as writer:
        await writer.write(Order("a", 1))
        writer.write(Order("a", 1))  # refused
    async for item in orders.items():
        print(item.data)  # refused
