"""A typo is refused: keys and query parameters that no route knows, and keys that come twice.

The routes are taken from the document that the server hands out, so that a new one is asked, too.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.contract.conftest import Boot, NewTopic
from tests.contract.queues import as_queue
from tests.contract.server import Server, TopicHandle
from tests.contract.streams import Streams, session
from tests.support import Answer
from tests.support.arrow import arrow_stream

ARROW = {"Content-Type": "application/vnd.apache.arrow.stream"}
JSON = "application/json"
# What has to be in a body, by its operation: enough to be refused for nothing but what is added to it.
BODIES: dict[str, dict[str, Any]] = {
    "append": {"records": [{"data": 1}]},
    "deleteRecords": {"before_seq": 1},
    "claim": {"node": "w"},
    "ack": {"node": "w", "seqs": []},
    "nack": {"node": "w", "seqs": []},
    "extend": {"node": "w", "seqs": [], "lease_ms": 1000},
    "putRouter": {"source": "t", "dest": "copies"},
    "putCursor": {"seq": 1},
    "putPipeline": {"state": "running"},
    "watch": {"topics": {"t": {}}},
    "commitStage": {"identity": {"id": "i", "batch": 1}, "parts": []},
}
QUEUE_VERBS = ("claim", "ack", "nack", "extend", "work", "leases")


class Operation(NamedTuple):
    name: str
    method: str
    path: str
    content: str | None
    # Names that its body may have.
    keys: list[str]

    @property
    def body(self) -> dict[str, Any]:
        return dict(BODIES.get(self.name, {}))


@pytest.fixture(scope="module")
def operations(server: Server) -> list[Operation]:
    """Every operation there is, on things that are there."""
    server.topic("t").write(1)
    server.topic("jobs", type="queue")
    server.send("PUT", "/v0/routers/r", {"source": "t", "dest": "copies"}).ok(201)
    server.send("PUT", "/v0/topics/t/cursors/c", {"seq": 0}).ok(201)
    server.send("PUT", "/v0/pipelines/p", {"state": "running"}).ok(201)
    places = {
        "topic": "t",
        "router": "r",
        "pipeline": "p",
        "consumer": "c",
        "wid": session(server, ["t"])["wid"],
        "hold": server.send("POST", "/v0/admin/backup").ok()["hold"],
        "purge": server.send("POST", "/v0/admin/purge").json["purge"],
        "snapshot": server.send("GET", "/v0/topics/t/segments").ok()["snapshot"],
        "id": "stage",
        "n": "0",
        "seq": "1",
    }
    return list(_operations(server.send("GET", "/v0/openapi.json").json, places))


def _operations(document: Any, places: dict[str, str]) -> Iterator[Operation]:
    for path, methods in document["paths"].items():
        here = places | ({"topic": "jobs"} if path.rpartition("/")[2] in QUEUE_VERBS else {})
        for method, told in methods.items():
            content = next(iter(told.get("requestBody", {}).get("content", {})), None)
            keys: list[str] = []
            if content == JSON:
                reference = told["requestBody"]["content"][JSON]["schema"]["$ref"]
                keys = list(document["components"]["schemas"][reference.rpartition("/")[2]]["properties"])
            yield Operation(told["operationId"], method.upper(), path.format(**here), content, keys)


def ask(server: Server, operation: Operation, query: str = "", body: bytes | None = None) -> Answer:
    headers = {}
    if operation.content is not None:
        headers = {"Content-Type": operation.content}
        if body is None:
            is_json = operation.content == JSON
            body = json.dumps(operation.body).encode() if is_json else arrow_stream({"data": ["1"]})
    if operation.path == "/v0/ws":
        key = "dGhlIHNhbXBsZSBub25jZQ=="
        headers = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Key": key}
        headers["Sec-WebSocket-Version"] = "13"
    return server.fresh_request(operation.method, operation.path + query, body, headers)


def test_every_route_refuses_a_query_parameter_it_does_not_know(
    server: Server, operations: list[Operation]
) -> None:
    for operation in operations:
        answer = ask(server, operation, "?bogus=1&sillier=2&bogus=3")
        assert (answer.status, answer.code) == (400, "invalid_request"), operation
        detail = answer.json["error"]["detail"]
        assert detail["unknown"] == ["bogus", "sillier"], operation
        assert isinstance(detail["did_you_mean"], dict), operation


def test_a_query_parameter_that_comes_twice(server: Server, new_topic: NewTopic) -> None:
    """Only one of the values could count: `dry_run=false&dry_run=true` dropped the topic."""
    topic = new_topic()
    topic.fill(2)
    for query in ("dry_run=false&dry_run=true", "if_empty=false&if_empty=true", "dry_run=true&dry_run=true"):
        detail = server.send("DELETE", f"{topic.path}?{query}").refused(400, "invalid_request")
        assert detail == {"duplicate": [query.partition("=")[0]]}
    records = topic.path + "/records"
    detail = server.send("GET", f"{records}?tag=a&x=1&tag=b&x=2&limit=1").refused(400, "invalid_request")
    assert (detail["duplicate"], detail["unknown"]) == (["tag"], ["x"])
    # Those that may.
    assert len(server.send("GET", f"{records}?node=a&node=b").ok()["records"]) == 2
    assert topic.state()["count"] == 2


def test_every_body_refuses_a_key_it_does_not_know(server: Server, operations: list[Operation]) -> None:
    for operation in operations:
        for key in operation.keys:
            typo = f"{key}x"
            answer = ask(server, operation, body=json.dumps(operation.body | {typo: None, "": []}).encode())
            detail = answer.refused(400, "invalid_request")
            assert set(detail["unknown"]) == {typo, ""}, operation
            assert detail["did_you_mean"] == {typo: key}, operation


def test_every_body_refuses_a_key_that_comes_twice(server: Server, operations: list[Operation]) -> None:
    for operation in operations:
        whole = json.dumps(operation.body)[1:-1]
        for key in operation.keys:
            value = json.dumps(operation.body.get(key))
            twice = f'"{key}": {value}, "{key}" :{value}'
            text = "{" + ", ".join(filter(None, [whole, twice if key not in operation.body else ""])) + "}"
            if key in operation.body:
                text = "{" + f'"{key}":{value}, {whole}' + "}"
            detail = ask(server, operation, body=text.encode()).refused(400, "invalid_request")
            assert detail["duplicate"] == [key], (operation, text)
            assert "unknown" not in detail


def test_a_body_that_no_one_reads_is_not_passed_over(server: Server, operations: list[Operation]) -> None:
    """`DELETE … {"dry_run": true}` would remove the topic."""
    for operation in operations:
        if operation.content is None and operation.path != "/v0/ws":
            body = b'{"dry_run": true}'
            headers = {"Content-Type": JSON}
            answer = server.fresh_request(operation.method, operation.path, body, headers)
            assert answer.refused(400, "invalid_request")["unknown"] == ["dry_run"], operation
            if operation.method != "GET":
                # As `curl -d dry_run=true` sends it, and a form of any web page.
                headers = {"Content-Type": "application/x-www-form-urlencoded"}
                answer = server.fresh_request(operation.method, operation.path, b"dry_run=true", headers)
                answer.refused(415, "unsupported_media_type")
    assert server.send("GET", "/v0/topics/t").ok()["count"] == 1


# --- what typos would have cost ---------------------------------------------------------------------------


def test_a_delete_with_a_typo_deletes_nothing(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.fill(5)
    detail = topic.ask_delete({"before_seq": 4, "matches": "user:7"}).refused(400, "invalid_request")
    assert detail == {"unknown": ["matches"], "did_you_mean": {"matches": "match"}}
    assert topic.state()["count"] == 5


def test_a_config_with_a_typo_makes_no_topic(server: Server, unborn: TopicHandle) -> None:
    answer = server.send("PUT", unborn.path, {"durabilty": "fsync"})
    detail = answer.refused(400, "invalid_request")
    assert detail == {"unknown": ["durabilty"], "did_you_mean": {"durabilty": "durability"}}
    detail = unborn.post({"records": [{"data": 1}], "config": {"durabilty": "fsync"}}).refused(
        400, "invalid_request"
    )
    assert detail["did_you_mean"] == {"durabilty": "durability"}
    server.send("GET", unborn.path).refused(404, "topic_not_found")


@pytest.mark.parametrize(
    ("body", "unknown"),
    [
        ({"records": [{"data": 1}], "durability": "fsync"}, ["durability"]),
        ({"records": [{"data": 1, "tags": "x"}]}, ["tags"]),
        ({"records": [{"data": 1}] * 3 + [{"data": 1, "note": "x"}]}, ["note"]),
        ({"records": [{"data": 1, "$seq": 5}]}, ["$seq"]),
        ({"records": [{"data": 1, "$ts": 5, "$node": "n", "tag": "t"}]}, ["$ts", "$node"]),
        ({"records": [{"data": 1, "Tag": "t"}], "node": "n", "nod": "m"}, ["nod", "Tag"]),
        ({"records": [{"data": 1, "x": 1}, {"data": 1, "y": 1, "x": 2}]}, ["x", "y"]),
        ({"records": [{"data": 1}], "config": {"lease": 1}}, ["lease"]),
    ],
    ids=str,
)
@pytest.mark.parametrize("spaced", [False, True])
def test_a_write_with_a_typo_writes_nothing(
    new_topic: NewTopic, unborn: TopicHandle, body: Any, unknown: list[str], spaced: bool
) -> None:
    text = json.dumps(body, separators=None if spaced else (",", ":")).encode()
    topic = new_topic()
    for target in (topic, unborn):
        detail = target.post(text).refused(400, "invalid_request")
        assert sorted(detail["unknown"]) == sorted(unknown)
    assert topic.state()["head_seq"] == 0
    unborn.server.send("GET", unborn.path).refused(404, "topic_not_found")


def test_payloads_are_opaque(new_topic: NewTopic) -> None:
    topic = new_topic()
    text = (
        b'{"records":[{"data":{"records":1,"records":2,"$seq":3,"config":{}},"meta":{"tagg":1,"tagg":2}},'
        b'{"data":{"a":{"data":1,"data":2}}}]}'
    )
    topic.post(text).ok()
    rows = topic.server.send("POST", topic.path + "/diff").text
    assert '"data":{"records":1,"records":2,"$seq":3,"config":{}},"meta":{"tagg":1,"tagg":2}' in rows
    assert '"data":{"a":{"data":1,"data":2}}' in rows


def test_inside_of_watches_and_stages(server: Server, new_topic: NewTopic) -> None:
    topic = new_topic()
    watch = {"topics": {topic.name: {"from_seq": 1, "form_seq": 2}}, "hearbeat_ms": 5}
    detail = server.send("POST", "/v0/watch", watch).refused(400, "invalid_request")
    assert sorted(detail["unknown"]) == ["form_seq", "hearbeat_ms"]
    assert detail["did_you_mean"] == {"form_seq": "from_seq", "hearbeat_ms": "heartbeat_ms"}
    text = b'{"topics":{"%b":{},"%b":{"tail":true}}}' % ((topic.name.encode(),) * 2)
    assert server.send("POST", "/v0/watch", text).refused(400, "invalid_request") == {
        "duplicate": [topic.name]
    }
    commit = {"identity": {"id": "i", "batch": 1, "bach": 2}, "parts": []}
    detail = server.send("POST", "/v0/stages/s/commit", commit).refused(400, "invalid_request")
    assert detail == {"unknown": ["bach"], "did_you_mean": {"bach": "batch"}}


def test_columns_of_arrow_bodies_are_names_too(server: Server, new_topic: NewTopic) -> None:
    topic = new_topic()
    body = arrow_stream({"data": ["1"], "tags": ["x"], "topic": [topic.name]})
    answer = server.fresh_request("POST", topic.path + "/append", body, ARROW)
    detail = answer.refused(400, "invalid_request")
    assert detail == {"unknown": ["tags", "topic"], "did_you_mean": {"tags": "tag"}, "batches": []}
    answer = server.fresh_request("PUT", "/v0/stages/s/parts/0", body, ARROW)
    assert answer.refused(400, "invalid_request")["unknown"] == ["tags"]
    answer = server.fresh_request("POST", "/v0/topics/none/append?create=false&x=1", body, ARROW)
    answer.refused(404, "topic_not_found")
    assert topic.state()["count"] == 0


def test_a_compressed_body_is_read_as_closely(new_topic: NewTopic) -> None:
    topic = new_topic()
    text = gzip.compress(b'{"records":[{"data":1,"tagg":"x"}]}')
    headers = {"Content-Type": JSON, "Content-Encoding": "gzip"}
    answer = topic.server.fresh_request("POST", topic.path, text, headers)
    assert answer.refused(400, "invalid_request")["did_you_mean"] == {"tagg": "tag"}


# --- the order of things ----------------------------------------------------------------------------------


def test_existence_and_kind_are_judged_first(
    server: Server, new_topic: NewTopic, unborn: TopicHandle
) -> None:
    log = as_queue(new_topic())
    extra = {"bogus": 1}
    for verb, body in (
        ("claim", {"node": "w"}),
        ("ack", {"node": "w", "seqs": []}),
        ("nack", {"node": "w", "seqs": []}),
        ("extend", {"node": "w", "seqs": [], "lease_ms": 1000}),
    ):
        assert log.ask(verb, body | extra).refused(409, "not_a_queue") == {"topic": log.name}
        as_queue(unborn).ask(f"{verb}?bogus=1", body).refused(404, "topic_not_found")
    for answer in (
        unborn.ask_diff(**extra),
        unborn.ask_delete({"before_seq": 4, **extra}),
        unborn.post({"records": [{"data": 1}], "create": False, **extra}),
        server.send("POST", unborn.path + "/scan", extra),
        server.send("GET", unborn.path + "?bogus=1"),
        server.send("GET", unborn.path + "/ledger?bogus=1"),
        server.send("GET", unborn.path + "/segments?bogus=1"),
        server.send("POST", "/v0/watch", {"topics": {unborn.name: {}}, **extra}),
        server.send(
            "PUT", "/v0/routers/x", {"source": "s", "dest": unborn.name, "create_dest": False, **extra}
        ),
    ):
        answer.refused(404, "topic_not_found")
    server.send("PUT", log.path, {"type": "queue", **extra}).refused(409, "topic_exists_incompatible")
    server.send("GET", "/v0/watch/wid_AAAAAAAAAAAAAAAAAAAAAA?bogus=1").refused(404, "not_found")


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("/diff", {"from_seq": -1}, "invalid_request"),
        ("/diff", {"limit": "x"}, "invalid_request"),
        ("/delete", {}, "invalid_request"),
        ("/delete", {"seqs": []}, "invalid_request"),
        ("/delete", {"match": ["tag", "In", "x"]}, "invalid_request"),
        ("", {"records": []}, "invalid_request"),
        ("", {}, "invalid_request"),
        ("", {"records": [{"tag": "x"}]}, "invalid_request"),
        ("", {"records": [{"data": 1, "tag": 5}]}, "invalid_request"),
        ("", {"records": [{"data": 1}] * 10_001}, "batch_too_large"),
        ("", {"records": [{"data": "x" * (1 << 20)}]}, "record_too_large"),
        ("", {"records": [{"data": 1}], "config": {"dead_letter": "-"}}, "invalid_request"),
        ("/claim", {"node": ""}, "invalid_request"),
        ("/ack", {"node": "w", "seqs": list(range(1001))}, "batch_too_large"),
        ("/scan", {"columns": ["what"]}, "invalid_request"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_every_other_mistake_tells_of_them_too(
    new_topic: NewTopic, path: str, body: dict[str, Any], code: str
) -> None:
    topic = new_topic()
    text = json.dumps(body)[:-1] + (", " if body else "") + '"whatever": 1, "whatever": 2}'
    answer = topic.server.send("POST", f"{topic.path}{path}?more=1", text.encode())
    detail = answer.refused(400, code)
    assert detail["unknown"] == ["more", "whatever"]
    assert detail["duplicate"] == ["whatever"]
    assert "did_you_mean" in detail


def test_a_body_that_is_no_json_is_no_typo(new_topic: NewTopic) -> None:
    topic = new_topic()
    for text in (
        b'{"records":[{"data":1}],"x":}',
        b"[1]",
        b'"records"',
        b"\xff",
        b'{"records":[{"data":1}]}{}',
    ):
        answer = topic.post(text)
        answer.refused(400, "invalid_request")
        assert "detail" not in answer.json["error"]


def test_names_with_escapes_are_the_same_names(new_topic: NewTopic) -> None:
    topic = new_topic()
    assert topic.post(rb'{"r\u0065cords":[{"d\u0061ta":1}]}').ok()["count"] == 1
    detail = topic.post(rb'{"records":[{"data":1}],"r\u0065cords":[{"data":2}]}').refused(
        400, "invalid_request"
    )
    assert detail == {"duplicate": ["records"]}
    detail = topic.post(b'{"records":[{"data":1}],"node":null,"records":[{"data":2}]}').refused(
        400, "invalid_request"
    )
    assert detail == {"duplicate": ["records"]}
    detail = topic.post(b'{"records":[{"data":"]}"}],"idempotency_key":"],\\"a\\":","idempotency_key":"b"}')
    assert detail.refused(400, "invalid_request") == {"duplicate": ["idempotency_key"]}
    assert topic.state()["head_seq"] == 1


def test_a_thousand_typos_are_not_all_repeated(new_topic: NewTopic) -> None:
    body = {"records": [{"data": 1, f"key-{n}": 1} for n in range(1000)]}
    detail = new_topic().post(body).refused(400, "invalid_request")
    assert 0 < len(detail["unknown"]) <= 100


# --- over a socket ----------------------------------------------------------------------------------------


def test_commands_of_sockets(server: Server, new_topic: NewTopic, streams: Streams) -> None:
    topic = new_topic()
    client = streams.socket(server)

    def refused(code: str = "invalid_request", **command: Any) -> Any:
        client.send(request_id=7, **command)
        error = client.next("error")
        assert (error["code"], error["request_id"]) == (code, 7)
        return error["detail"]

    assert refused(op="ping", what=1) == {"unknown": ["what"], "did_you_mean": {}}
    assert refused(op="subscribe", topic=topic.name, form_seq=3)["did_you_mean"] == {"form_seq": "from_seq"}
    assert refused(op="subscribe", topics={topic.name: {"tails": True}})["did_you_mean"] == {"tails": "tail"}
    assert refused(op="subscribe", topc=topic.name)["did_you_mean"] == {"topc": "topic"}
    assert refused(op="unsubscribe", topic=topic.name, tag="x")["unknown"] == ["tag"]
    assert refused(op="publish", topic=topic.name, records=[{"data": 1}], retrun_seqs=False) == {
        "unknown": ["retrun_seqs"],
        "did_you_mean": {"retrun_seqs": "return_seqs"},
    }
    assert refused(op="publish", topic=topic.name, records=[{"data": 1, "tga": "x"}])["unknown"] == ["tga"]
    assert refused(op="publish", topic="new", records=[{"data": 1}], config={"durabilty": 1})["unknown"]
    assert refused(op="publish", topic=topic.name, records=[], node=1, x=1)["unknown"] == ["x"]
    detail = refused("invalid_json", op="publish", topc=topic.name, records=[{"data": 1}])
    assert detail["did_you_mean"] == {"topc": "topic"}
    client.send_text(f'{{"op":"publish","topic":"{topic.name}","records":[{{"data":1}}],"records":[]}}')
    assert client.next("error")["detail"] == {"duplicate": ["records"]}
    # Existence is judged first, and nothing came of all this.
    client.send(op="subscribe", topic="absent", what=1)
    assert client.next("error")["code"] == "topic_not_found"
    client.send(op="publish", topic="absent", create=False, records=[{"data": 1}], what=1)
    assert client.next("error")["code"] == "topic_not_found"
    assert topic.state()["head_seq"] == 0
    assert client.ask(op="publish", topic=topic.name, records=[{"data": 1}])["op"] == "ack"


# --- the old way ------------------------------------------------------------------------------------------


def test_unknown_names_can_be_passed_over(boot: Boot, streams: Streams) -> None:
    server = boot(TOPICS_UNKNOWN_KEYS="ignore")
    topic = server.topic("t", bogus=1)
    topic.records({"data": 1, "bogus": {}, "$seq": 9, "$node": "x"}, bogus=[1], config={"bogus": 1})
    topic.post({"records": [{"data": 2}], "idempotency_key": "k", "bogus": 1}, "?bogus=1").ok()
    assert [record["$seq"] for record in topic.diff(bogus=1)["records"]] == [1, 2]
    assert "$node" not in topic.diff()["records"][0]
    assert topic.state("?bogus=1")["count"] == 2
    assert topic.delete(before_seq=2, bogus=1)["deleted"] == 1
    watch = server.send("POST", "/v0/watch?bogus=1", {"topics": {"t": {"bogus": 1}}, "bogus": 1}).ok()
    streams.events(server, watch["stream_url"] + "?bogus=1")
    body = arrow_stream({"data": ["3"], "bogus": ["x"]})
    server.fresh_request("POST", "/v0/topics/t/append?bogus=1", body, ARROW).ok()
    client = streams.socket(server)
    assert client.ask(op="publish", topic="t", records=[{"data": 4, "bogus": 1}], bogus=1)["last_seq"] == 4
    # Other mistakes are told without a word of them, and what comes twice is still a mistake.
    answer = topic.ask_diff(bogus=1, from_seq=-1)
    answer.refused(400, "invalid_request")
    assert "detail" not in answer.json["error"]
    twice = server.send("POST", "/v0/topics/t/diff", b'{"limit":1,"limit":2,"bogus":1}')
    assert twice.refused(400, "invalid_request") == {"duplicate": ["limit"]}


# --- return_seqs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "query", "listed"),
    [
        ({}, "", True),
        ({"return_seqs": True}, "", True),
        ({"return_seqs": False}, "", False),
        ({"return_seqs": True}, "?return_seqs=false", False),
        ({"return_seqs": False}, "?return_seqs=true", False),
        ({}, "?return_seqs=0", False),
    ],
)
def test_seqs_are_listed_unless_body_or_query_says_not_to(
    new_topic: NewTopic, fields: dict[str, Any], query: str, listed: bool
) -> None:
    topic = new_topic()
    for records in ([{"data": 1}], [{"data": 1, "tag": "x"}] * 3):
        body = topic.post({"records": records, **fields}, query).ok()
        assert ("seqs" in body) is listed
    topic.post({"records": [{"data": 1}], "return_seqs": None}).refused(400, "invalid_request")
