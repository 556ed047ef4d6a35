"""Queues: jobs are finished or given back, leases renewed, lost jobs told before one is handed out."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.sdk.conftest import Play
from topics import AsyncTopics, InvalidData, LeaseLost, NoJob, RecordsLost, Topics
from topics.client.operations import queueing
from topics.client.operations.queueing import Claiming


async def counters(queue: Any) -> dict[str, int]:
    found: dict[str, int] = (await queue.describe()).queue
    return found


def test_claim_ack_nack_extend(play: Play, name: str) -> None:
    async def scenario(server: Any) -> None:
        queue = server.queue(name, lease_ms=60_000)
        assert await queue.claim() == []
        assert (await queue.describe()).type == "queue"
        for number in range(3):
            await queue.push({"n": number}, tag="t", meta={"m": 1})
        jobs = await queue.claim(2)
        assert [job.seq for job in jobs] == [1, 2]
        first, second = jobs
        assert (first.data, first.tag, first.meta, first.deliveries) == ({"n": 0}, "t", {"m": 1}, 1)
        assert first.lease_id.startswith("lease_")
        await first.extend(90_000)
        await first.ack()
        with pytest.raises(LeaseLost) as lost:
            await first.ack()
        assert (lost.value.topic, lost.value.seq, lost.value.code) == (name, 1, "lease_lost")
        await second.nack("try again")
        again = await queue.claim(5)
        assert [(job.seq, job.deliveries) for job in again] == [(2, 2), (3, 1)]

    play(scenario)


def test_a_job_is_finished_or_given_back(play: Play, name: str) -> None:
    async def scenario(server: Any) -> None:
        queue = server.queue(name, max_deliveries=1, dead_letter=name + "-dead")
        await queue.push(1)
        async with queue.job() as job:
            assert job.data == 1
        assert (await queue.describe()).count == 0
        await queue.push(2)
        with pytest.raises(KeyError):
            async with queue.job():
                raise KeyError("no such customer")
        assert (await counters(queue))["ready"] == 1
        with pytest.raises(NoJob):
            async with queue.job():
                pass
        (dead,) = [record async for record in server.topic(name + "-dead").read()]
        assert "no such customer" in dead.meta["$dead_letter_error"]

    play(scenario)


def test_a_job_that_was_settled_by_hand_is_left_alone(play: Play, name: str) -> None:
    async def scenario(server: Any) -> None:
        queue = server.queue(name)
        await queue.push(1)
        async with queue.job() as job:
            await job.ack()
        await queue.push(2)
        async with queue.job() as job:
            await job.nack(delay_ms=60_000)
        assert await counters(queue) == {"ready": 0, "in_flight": 0, "dead_lettered": 0}

    play(scenario)


class Renewals:
    """Looks over the shoulder of the heartbeat, which beats often here."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        settle = Claiming.settle

        async def watched(claiming: Any, verb: str, *args: Any, **more: Any) -> Any:
            try:
                result = await settle(claiming, verb, *args, **more)
            except LeaseLost:
                self.done.append("lost")
                raise
            self.done.append(verb)
            return result

        monkeypatch.setattr(Claiming, "settle", watched)
        monkeypatch.setattr(queueing, "HEARTBEATS", 1000)

    async def until(self, wanted: str, times: int = 1) -> None:
        async with asyncio.timeout(60):
            while self.done.count(wanted) < times:  # noqa: ASYNC110
                await asyncio.sleep(0.005)


def test_a_lease_is_renewed_while_the_job_is_worked_on(
    play: Play, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(server: Any) -> None:
        queue = server.queue(name, lease_ms=30_000)
        await queue.push(1)
        renewals = Renewals(monkeypatch)
        async with queue.job():
            await renewals.until("extend", times=2)
        assert renewals.done[-1] == "ack"
        assert (await queue.describe()).count == 0

    play(scenario)


def test_a_lease_that_is_lost_cancels_a_coroutine_and_follows_a_function(
    play: Play, surface: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(server: Any) -> None:
        queue = server.queue(name, lease_ms=30_000)
        await queue.push(1)
        ended: list[str] = []
        renewals = Renewals(monkeypatch)

        async def work() -> None:
            async with queue.job():
                await queue.delete(before_seq=2)
                try:
                    await (asyncio.sleep(60) if surface == "asyncio" else renewals.until("lost"))
                    ended.append("by itself")
                except asyncio.CancelledError:
                    ended.append("cancelled")
                    raise

        # Beats that come before the delete renew it; what is lost is told by one behind.
        with pytest.raises(LeaseLost) as lost:
            await work()
        assert lost.value.seq == 1
        assert ended == ["cancelled" if surface == "asyncio" else "by itself"]

    play(scenario)


def test_lost_jobs_are_told_before_one_is_handed_out(play: Play, name: str, lose: Any) -> None:
    async def scenario(server: Any) -> None:
        queue = server.queue(name)
        for number in range(4):
            await queue.push(number)
        await asyncio.to_thread(lose, name, 2)
        with pytest.raises(RecordsLost) as lost:
            await queue.claim(2)
        assert (lost.value.gap_from, lost.value.gap_to) == (1, 2)
        # What came with the news is this client's: another one does not get it, any queue of this one does.
        jobs = await server.queue(name).claim(4)
        assert [job.seq for job in jobs] == [3, 4]

    play(scenario)


def test_on_loss_gets_lost_jobs(play: Play, name: str, lose: Any) -> None:
    async def scenario(server: Any) -> None:
        queue, told = server.queue(name), []
        for number in range(3):
            await queue.push(number)
        await asyncio.to_thread(lose, name, 2)
        async with queue.job(on_loss=told.append) as job:
            assert job.seq == 3
        assert [loss.gap_to for loss in told] == [2]

    play(scenario)


def test_jobs_that_came_with_news_are_given_back_at_the_end(
    surface: str, shared: Any, client: Topics, name: str
) -> None:
    from tests.sdk.both import connect

    async def scenario() -> None:
        async with connect(surface, shared.url) as server:
            queue = server.queue(name, lease_ms=3_600_000)
            for number in range(3):
                await queue.push(number)
            await asyncio.to_thread(shared.lose, name, 1)
            with pytest.raises(RecordsLost):
                await queue.claim(2)

    asyncio.run(scenario())
    assert [job.seq for job in client.queue(name).claim(3)] == [2, 3]


def test_a_job_of_another_shape_goes_back(play: Play, name: str) -> None:
    async def scenario(server: Any) -> None:
        await server.queue(name).push("text")
        await server.queue(name).push(7)
        numbers = server.queue(name, type=int)
        with pytest.raises(InvalidData):
            await numbers.claim(2)
        assert [job.data for job in await numbers.claim()] == [7]
        assert [job.data for job in await server.queue(name).claim()] == ["text"]

    play(scenario)


def test_a_worker_works_until_it_is_stopped(play: Play, name: str) -> None:
    async def scenario(server: Any) -> None:
        queue, done = server.queue(name), []
        for number in range(20):
            await queue.push(number)

        async def handle(job: Any) -> None:
            if job.data == 7 and job.deliveries == 1:
                raise ValueError("stumbles once")
            done.append(job.data)
            if len(done) == 20:
                worker.stop()

        worker = queue.worker(handle, concurrency=3)
        await worker.run()
        assert sorted(done) == list(range(20))
        assert (await queue.describe()).count == 0

    play(scenario)


def test_a_worker_on_asyncio_takes_plain_functions(shared: Any, client: Topics, name: str) -> None:
    client.queue(name).push(1)

    async def scenario() -> None:
        async with AsyncTopics(shared.url) as server:
            worker = server.queue(name).worker(lambda job: worker.stop(), concurrency=1)
            await worker.run()

    asyncio.run(scenario())
    assert client.queue(name).describe().count == 0


def test_a_worker_stops_with_a_loss(play: Play, name: str, lose: Any) -> None:
    async def scenario(server: Any) -> None:
        seen: list[int] = []
        told: list[Any] = []
        queue, another = server.queue(name), server.queue(name + "-2")
        for number in range(8):
            await queue.push(number)
            await another.push(number)
        await asyncio.to_thread(lose, name, 2)
        await asyncio.to_thread(lose, another.name, 7)

        async def handle(job: Any) -> None:
            seen.append(job.seq)
            worker.stop()

        worker = queue.worker(handle)
        with pytest.raises(RecordsLost):
            await worker.run()
        assert seen == []  # nor has any of the others that work beside the one that was told
        worker = another.worker(handle, on_loss=lambda loss: told.append((loss.gap_to, list(seen))))
        await worker.run()
        assert (told, seen) == ([(7, [])], [8])

    play(scenario)
