"""Who holds which job, and the way back from the dead letters."""

from __future__ import annotations

from typing import Any

from tests.contract.conftest import Boot, NewTopic
from tests.contract.queues import Queue, as_queue
from tests.contract.server import Server, TopicHandle
from tests.support import Answer


def redrive(letters: TopicHandle, **body: Any) -> Any:
    return ask(letters, body).ok()


def ask(letters: TopicHandle, body: Any) -> Answer:
    return letters.server.send("POST", letters.path + "/redrive", body)


def queue_with_letters(new_topic: NewTopic, letters: TopicHandle, *jobs: Any, **config: Any) -> Queue:
    """All of these jobs were delivered once, and given up."""
    queue = as_queue(new_topic(type="queue", max_deliveries=1, dead_letter=letters.name, **config))
    queue.records(*jobs)
    queue.do("nack", *queue.claimed(len(jobs)), error="broken")
    assert queue.claim(len(jobs)) == []
    return queue


def job(data: Any, **fields: Any) -> dict[str, Any]:
    return {"data": data, **fields}


def test_leases_are_listed_in_pages(server: Server, new_topic: NewTopic) -> None:
    queue = as_queue(new_topic(type="queue"))
    queue.write(*range(5))
    first = queue.claim(3, node="one")
    queue.do("nack", 2, node="one")
    second = queue.claim(1, node="two", lease_ms=60_000)
    found = server.send("GET", queue.path + "/leases").ok()
    jobs = {entry["$seq"]: entry for entry in (*first, *second)}
    assert found["topic"] == queue.name
    for lease in found["leases"]:
        # In Unix time like that of the claim, as it is now: the two clocks do not tick together.
        assert abs(lease.pop("deadline") - jobs[lease["$seq"]]["deadline"]) < 1000
    assert found["leases"] == [
        {
            "$seq": seq,
            "node": node,
            "lease_id": jobs[seq]["lease_id"],
            "deliveries": deliveries,
        }
        for seq, node, deliveries in ((1, "one", 1), (2, "two", 2), (3, "one", 1))
    ]
    assert "next_cursor" not in found
    seen, cursor = [], ""
    while cursor is not None:
        page = server.send("GET", f"{queue.path}/leases?page_size=2&cursor={cursor}").ok()
        seen += [lease["$seq"] for lease in page["leases"]]
        cursor = page.get("next_cursor")
    assert seen == [1, 2, 3]
    server.send("GET", queue.path + "/leases?cursor=x").refused(400, "invalid_request")


def test_leases_of_what_is_no_queue(server: Server, new_topic: NewTopic, unborn: TopicHandle) -> None:
    for path, status, code in ((new_topic().path, 409, "not_a_queue"), (unborn.path, 404, "topic_not_found")):
        server.send("GET", path + "/leases").refused(status, code)
        server.send("GET", path + "/leases?pagesize=1").refused(status, code)


def test_letters_go_back_to_where_they_came_from(new_topic: NewTopic) -> None:
    letters = new_topic()
    one = queue_with_letters(new_topic, letters, job(1, tag="t", node="n", meta={"own": 1}), job(2))
    two = queue_with_letters(new_topic, letters, job(3, meta={}))
    assert letters.state()["count"] == 3
    answer = redrive(letters)
    assert {key: answer[key] for key in ("topic", "moved", "skipped", "more")} == {
        "topic": letters.name,
        "moved": 3,
        "skipped": [],
        "more": False,
    }
    # Deleted here, in silence; and there they are jobs like any others, whose deliveries start again.
    assert letters.diff()["records"] == []
    assert letters.gap() is None
    first, second = one.claim(5)
    assert [(j["data"], j["deliveries"], j.get("$tag")) for j in (first, second)] == [
        (1, 1, "t"),
        (2, 1, None),
    ]
    assert first["meta"] == {"own": 1}
    assert "meta" not in second
    assert [j["data"] for j in two.claim(5)] == [3]
    assert (one.told(), letters.state()["earliest_seq"]) == (None, 4)
    assert redrive(letters)["moved"] == 0


def test_some_of_them(new_topic: NewTopic) -> None:
    letters = new_topic()
    queue = queue_with_letters(new_topic, letters, *(job(n, tag=f"k:{n % 2}") for n in range(6)))
    answer = redrive(letters, max=1, match="k:1")
    assert (answer["moved"], answer["more"]) == (1, True)
    assert [j["data"] for j in queue.claim(9)] == [1]
    assert redrive(letters, match=["tag", "Glob", "k:1*"])["moved"] == 2
    assert [record["data"] for record in letters.diff()["records"]] == [0, 2, 4]
    assert redrive(letters, max=0)["moved"] == 0
    assert redrive(letters, match=None, into=None)["moved"] == 3


def die(queue: Queue) -> None:
    """The job in it is delivered once more than it may be."""
    queue.do("nack", *queue.claimed(1), error=f"broken in {queue.name}")
    assert queue.claim() == []


def test_a_letter_of_a_letter_goes_all_the_way_back(boot: Boot) -> None:
    server = boot()
    letters = server.topic("letters")
    second = as_queue(server.topic("second", type="queue", max_deliveries=1, dead_letter="letters"))
    first = as_queue(server.topic("first", type="queue", max_deliveries=1, dead_letter="second"))
    own = {"own": 1, "$dead_letter_from": "a word of its writer", "$dead_letter_mine": 2}
    first.records(job("job", meta=own))
    die(first)
    [before] = second.diff()["records"]
    die(second)
    server.restart(cleanly=False)
    assert redrive(letters)["moved"] == 1
    [again] = second.diff()["records"]
    assert again["meta"] == before["meta"]
    server.restart(cleanly=False)
    answer = redrive(second)
    assert (answer["moved"], answer["skipped"]) == (1, [])
    [returned] = first.claim()
    assert (returned["data"], returned["meta"], returned["deliveries"]) == ("job", own, 1)


def test_into_another_queue(new_topic: NewTopic, unborn: TopicHandle) -> None:
    letters, other = new_topic(), as_queue(new_topic(type="queue"))
    queue = queue_with_letters(new_topic, letters, job("dead"))
    letters.write("never a job")
    ask(letters, {"into": unborn.name}).refused(404, "topic_not_found")
    ask(letters, {"into": new_topic().name}).refused(409, "not_a_queue")
    assert redrive(letters, into=other.name)["moved"] == 2
    assert [j["data"] for j in other.claim(5)] == ["dead", "never a job"]
    assert queue.claim(5) == []


def test_what_cannot_go_back_stays(new_topic: NewTopic) -> None:
    letters = new_topic()
    queue = queue_with_letters(new_topic, letters, job("dead"))
    letters.records(job(1), job(2, meta={"$dead_letter_from": new_topic().name}), job(3, meta={"m": "\\"}))
    answer = redrive(letters)
    assert (answer["moved"], answer["skipped"]) == (1, [2, 3, 4])
    assert letters.seqs() == [2, 3, 4]
    queue.drop().ok()


def test_a_full_queue_refuses_and_nothing_moves(new_topic: NewTopic) -> None:
    letters = new_topic()
    queue = queue_with_letters(new_topic, letters, job(1), job(2), cap_records=2, discard="reject")
    queue.write("x")
    ask(letters, {}).refused(422, "topic_full")
    assert letters.state()["count"] == 2
    assert redrive(letters, max=1)["moved"] == 1
    assert letters.seqs() == [2]


def test_letters_that_a_worker_holds_stay(new_topic: NewTopic) -> None:
    letters = as_queue(new_topic(type="queue"))
    queue = queue_with_letters(new_topic, letters, job(1), job(2))
    assert letters.claimed(1) == [1]
    answer = redrive(letters)
    assert (answer["moved"], answer["skipped"]) == (1, [1])
    assert [j["data"] for j in queue.claim(5)] == [2]
    assert letters.do("ack", 1)["acked"] == 1
    assert letters.told() is None


def test_wrong_requests(new_topic: NewTopic, unborn: TopicHandle) -> None:
    letters = new_topic()
    for body in ({"max": -1}, {"max": "1"}, {"max": None}, {"match": ["x"]}, {"into": 5}, {"maximum": 1}):
        ask(letters, body).refused(400, "invalid_request")
    ask(unborn, {"maximum": 1}).refused(404, "topic_not_found")
    queue = as_queue(new_topic(type="queue"))
    ask(queue, {"into": queue.name}).refused(400, "invalid_request")


def test_keys_and_restarts(boot: Boot) -> None:
    server = boot(TOPICS_API_KEYS="boss,shop:w:shop.|dead")
    boss = {"Authorization": "Bearer boss"}
    shop = {"Authorization": "Bearer shop"}

    def send(verb: str, path: str, body: Any, **headers: str) -> Any:
        return server.send(verb, f"/v0/topics/{path}", body, **headers).json

    for name in ("shop.q", "bank.q"):
        send("PUT", name, {"type": "queue", "max_deliveries": 1, "dead_letter": "dead"}, **boss)
        send("POST", name, {"records": [{"data": name}]}, **boss)
        send("POST", f"{name}/claim", {"node": "w", "lease_ms": 100}, **boss)
        send("POST", f"{name}/nack", {"node": "w", "seqs": [1]}, **boss)
        send("POST", f"{name}/claim", {"node": "w"}, **boss)
    answer = send("POST", "dead/redrive", {}, **shop)
    assert (answer["moved"], answer["skipped"]) == (1, [2])
    assert send("POST", "dead/redrive", {"into": "bank.q"}, **shop)["error"]["code"] == "forbidden"
    assert send("POST", "bank.q/redrive", {}, **shop)["error"]["code"] == "forbidden"
    server.restart(cleanly=False)
    assert [r["data"] for r in send("POST", "dead/diff", {}, **boss)["records"]] == ["bank.q"]
    assert [j["data"] for j in send("POST", "shop.q/claim", {"node": "w"}, **boss)["claimed"]] == ["shop.q"]
