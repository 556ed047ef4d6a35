"""Writing: numbering, limits of a batch and of a record, payload fidelity, creation on the way."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest

from tests.contract.conftest import Boot, NewTopic
from tests.contract.server import Server, TopicHandle, in_parallel

MIB = 1024 * 1024


def payload_bytes(topic: TopicHandle, from_seq: int = 0, **fields: Any) -> list[bytes]:
    """What stands after `"data":` in the answer, byte for byte, one record at a time."""
    body = topic.ask_diff(from_seq=from_seq, limit=1, **fields).body
    rows = body.partition(b'"records":[')[2].partition(b'],"next_from_seq":')[0]
    return [rows]


# The answer


def test_the_answer_to_a_write(new_topic: NewTopic) -> None:
    topic = new_topic()
    first = topic.write("a", "b", "c")
    performance = first.pop("performance")
    assert first == {
        "topic": topic.name,
        "epoch": topic.state()["epoch"],
        "first_seq": 1,
        "last_seq": 3,
        "seqs": [1, 2, 3],
        "head_seq": 3,
        "count": 3,
        "created": False,
        "deduped": False,
    }
    assert {"server_total_ms", "wal_append_ms", "fsync_ms"} <= set(performance)
    second = topic.write("d")
    assert (second["first_seq"], second["last_seq"], second["seqs"], second["count"]) == (4, 4, [4], 1)


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
def test_only_synced_writes_report_time_spent_syncing(new_topic: NewTopic, durability: str) -> None:
    topic = new_topic(durability=durability)
    topic.write(0)
    spent = topic.write(1)["performance"]["fsync_ms"]
    assert (spent > 0) is (durability == "fsync")


def test_seqs_can_be_left_out(new_topic: NewTopic) -> None:
    topic = new_topic()
    body = {"records": [{"data": 1}, {"data": 2}]}
    for word in ("false", "0"):
        answer = topic.post(body, f"?return_seqs={word}").ok()
        assert "seqs" not in answer
        assert answer["count"] == 2
    assert topic.post(body, "?return_seqs=no").ok()["seqs"] == [5, 6]
    assert topic.post(body, "?return_seqs=true").ok()["seqs"] == [7, 8]
    assert "seqs" not in topic.post(body, "?return%5Fseqs=fals%65").ok()


def test_records_keep_array_order_and_time_never_runs_back(new_topic: NewTopic) -> None:
    topic = new_topic()
    for start in range(0, 300, 100):
        topic.write(*range(start, start + 100))
    records, _ = topic.drain()
    assert [record["data"] for record in records] == list(range(300))
    assert [record["$seq"] for record in records] == list(range(1, 301))
    times = [record["$ts"] for record in records]
    assert times == sorted(times)
    assert abs(times[-1] - time.time() * 1000) < 60_000


def test_read_keys_are_present_only_when_they_say_something(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.records(
        {"data": None},
        {"data": 1, "node": "n", "tag": "t", "meta": {"k": 1}},
        {"data": 2, "node": "", "tag": "", "meta": {}},
    )
    plain, full, empty = topic.diff(include_tags=True)["records"]
    assert set(plain) == {"$seq", "$ts", "data"}
    assert plain["data"] is None
    assert full == {"$seq": 2, "$ts": full["$ts"], "$node": "n", "$tag": "t", "data": 1, "meta": {"k": 1}}
    assert (empty["$node"], empty["$tag"], empty["meta"]) == ("", "", {})
    assert [set(record) for record in topic.diff(include_meta=False)["records"]] == [
        {"$seq", "$ts", "data"},
        {"$seq", "$ts", "$node", "data"},
        {"$seq", "$ts", "$node", "data"},
    ]
    assert "$tag" not in topic.diff(1)["records"][0]


def test_labels_may_be_any_text(new_topic: NewTopic) -> None:
    topic = new_topic()
    texts = [
        "",
        " ",
        '"',
        "\\",
        "/",
        "\x00\x01\x1f\x7f",
        "\n\r\t",
        "é漢😀\u2028\u2029\ufeff",
        '","data":"x',
        "null",
        "*",
    ]
    topic.records(*[{"data": text, "tag": text, "node": text, "meta": {text: text}} for text in texts])
    records = topic.diff(include_tags=True)["records"]
    assert [(record["$tag"], record["$node"], record["data"]) for record in records] == [
        (t, t, t) for t in texts
    ]
    assert [record["meta"] for record in records] == [{text: text} for text in texts]
    for number, text in enumerate(texts, start=1):
        assert number not in topic.seqs(node=text)
        assert topic.delete(match=["tag", "Eq", text])["deleted"] == 1


def test_a_batch_node_is_the_default_for_its_records(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.records({"data": 1}, {"data": 2, "node": "own"}, {"data": 3, "node": None}, node="batch")
    assert [record["$node"] for record in topic.diff()["records"]] == ["batch", "own", "batch"]


# Payloads are opaque

PAYLOADS = [
    b"null",
    b"true",
    b"0",
    b"-0",
    b"-0.0",
    b"1E400",
    b"1e-400",
    b"123456789012345678901234567890",
    b"-123456789012345678901234567890.000",
    b"0.10000000000000000000000000000000000001",
    b"1.0",
    b"1e2",
    b'""',
    b'"\\u0000\\u001f\\u007f"',
    b'"\\u00e9 \\/ \\" \\\\ \\b\\f\\n\\r\\t"',
    b'"\\ud83d\\ude00"',
    '"é 漢 😀 \u2028\u2029\x7f\ufeff"'.encode(),
    b"[]",
    b"{}",
    b'{"":{"":[[],{}]}}',
    b'{"a":1,"a":2,"a":3}',
    b'{"b":1,"a":2}',
    b'{"$seq":5,"$ts":6,"$node":"x","$tag":"y","data":7,"meta":8,"records":9}',
    b'{"\\u0061":1,"a":2}',
    b'"},{\\"$seq\\":1"',
    b'"\\n"',
    b"[" * 500 + b"]" * 500,
    b'"' + b"x" * 70_000 + b'"',
]


@pytest.mark.parametrize("companions", [b"", b',"tag":"t","node":"n","meta":{"k":1}'], ids=["plain", "full"])
@pytest.mark.parametrize("data", PAYLOADS, ids=lambda data: repr(data[:24]))
def test_payloads_come_back_byte_for_byte(new_topic: NewTopic, data: bytes, companions: bytes) -> None:
    topic = new_topic()
    topic.post(b'{"records":[{"data":%b%b}]}' % (data, companions)).ok()
    row = payload_bytes(topic)[0]
    end = b',"meta":{"k":1}}' if companions else b"}"
    assert row.partition(b'"data":')[2] == data + end
    assert topic.state()["bytes"] == len(data) + (len(b'{"k":1}') if companions else 0)
    assert payload_bytes(topic, include_meta=False)[0].partition(b'"data":')[2] == data + b"}"


@pytest.mark.parametrize("text", [b"\\ud800", b"\\udc00", b"\\ud800x", b"\\ud800\\u0041", b"\\udc00\\ud800"])
@pytest.mark.parametrize("companions", [b"", b',"tag":"t"'], ids=["plain", "full"])
def test_half_characters_are_no_text_and_would_break_strict_readers(
    new_topic: NewTopic, text: bytes, companions: bytes
) -> None:
    new_topic().post(b'{"records":[{"data":"%b"%b}]}' % (text, companions)).refused(400, "invalid_request")


def test_only_insignificant_white_space_is_removed(new_topic: NewTopic) -> None:
    topic = new_topic()
    data = b'{ "a b" : [ 1 , " \\t " ,\n true ] , "a b":null }'
    spaced = b'{\r\n "records" :\t[ {"data" : %b , "meta" : { "m" : "  " } } ] }\n' % data
    topic.post(spaced).ok()
    row = payload_bytes(topic)[0]
    assert row.partition(b'"data":')[2] == b'{"a b":[1," \\t ",true],"a b":null},"meta":{"m":"  "}}'


def test_meta_comes_back_byte_for_byte(new_topic: NewTopic) -> None:
    topic = new_topic()
    meta = b'{"b":1e400,"a":"\\u0041","a":123456789012345678901234567890,"":{"n":[null]}}'
    topic.post(b'{"records":[{"meta":%b,"data":1}]}' % meta).ok()
    assert payload_bytes(topic)[0].endswith(b'"data":1,"meta":%b}' % meta)


def test_keys_may_be_written_with_escapes(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.post(
        b'{"\\u0072ecords":[{"d\\u0061ta":"x","t\\u0061g":"T","nod\\u0065":"N","met\\u0061":{"k":1}}]}'
    ).ok()
    (record,) = topic.diff(include_tags=True)["records"]
    assert (record["data"], record["$tag"], record["$node"], record["meta"]) == ("x", "T", "N", {"k": 1})


def test_words_in_payloads_are_not_mistaken_for_fields(new_topic: NewTopic) -> None:
    topic = new_topic()
    tricky = {"meta": {"tag": "node"}, "records": [], "idempotency_key": "k", "create": False}
    topic.write(tricky, "meta", '"tag":"x"')
    assert [record["data"] for record in topic.diff()["records"]] == [tricky, "meta", '"tag":"x"']


def test_deep_nesting_is_stored_or_refused_but_never_fatal(new_topic: NewTopic) -> None:
    topic = new_topic()
    for depth in (100, 900, 1100, 5000, 400_000):
        data = b"[" * depth + b"]" * depth
        answer = topic.post(b'{"records":[{"data":%b}]}' % data)
        if answer.status == 400:
            answer.refused(400, "invalid_request")
        else:
            head = answer.ok()["last_seq"]
            assert payload_bytes(topic, head - 1)[0].partition(b'"data":')[2] == data + b"}"
    topic.write("alive")


# Limits


def test_ten_thousand_records_fit_and_one_more_does_not(new_topic: NewTopic) -> None:
    topic = new_topic()
    assert topic.post({"records": [{"data": 0}] * 10_000}).ok()["last_seq"] == 10_000
    topic.post({"records": [{"data": 0}] * 10_001}).refused(400, "batch_too_large")
    topic.post({"records": [{"data": 0, "tag": "x" * 300}] * 10_001}).refused(400, "batch_too_large")
    assert topic.state()["head_seq"] == 10_000
    topic.post({"records": []}).refused(400, "invalid_request")
    topic.post({}).refused(400, "invalid_request")
    topic.post({"node": "n", "idempotency_key": "k"}).refused(400, "invalid_request")


@pytest.mark.parametrize(("field", "limit"), [("tag", 256), ("node", 128)])
@pytest.mark.parametrize("letter", ["a", "é", "漢", "😀"])
def test_tags_and_nodes_are_measured_in_bytes(
    new_topic: NewTopic, field: str, limit: int, letter: str
) -> None:
    topic = new_topic()
    size = len(letter.encode())
    exact = letter * (limit // size) + "a" * (limit % size)
    topic.records({"data": 1, field: exact})
    topic.post({"records": [{"data": 1}, {"data": 2, field: exact + "a"}]}).refused(400, "invalid_request")
    over = json.dumps({"records": [{"data": 2, field: exact + "a"}]}, ensure_ascii=False).encode()
    topic.post(over).refused(400, "invalid_request")
    (record,) = topic.diff(include_tags=True)["records"]
    assert record["$" + field] == exact


def test_a_batch_node_has_the_same_limit(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.post({"records": [{"data": 1}], "node": "n" * 128}).ok()
    topic.post({"records": [{"data": 1}], "node": "n" * 129}).refused(400, "invalid_request")
    topic.post({"records": [{"data": 1, "node": "short"}], "node": "n" * 129}).refused(400, "invalid_request")


def test_meta_has_at_most_64_keys(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.records({"data": 1, "meta": {f"k{number}": number for number in range(64)}})
    over = {f"k{number}": number for number in range(65)}
    topic.post({"records": [{"data": 1, "meta": over}]}).refused(400, "invalid_request")
    topic.records({"data": 1, "meta": {"nested": over}})


def test_meta_has_at_most_16384_compact_bytes(new_topic: NewTopic) -> None:
    topic = new_topic()
    exact = {"m": "x" * (16_384 - len('{"m":""}'))}
    topic.post(json.dumps({"records": [{"data": 1, "meta": exact}]}, indent=4).encode()).ok()
    over = {"m": exact["m"] + "x"}
    topic.post({"records": [{"data": 1, "meta": over}]}).refused(400, "invalid_request")
    assert topic.state()["head_seq"] == 1


def test_the_first_bad_record_says_why(new_topic: NewTopic) -> None:
    topic = new_topic()
    long_tag, large, missing = {"data": 1, "tag": "x" * 300}, {"data": "x" * MIB}, {"tag": "x"}
    for records, code in (
        ([long_tag, large], "invalid_request"),
        ([large, missing], "record_too_large"),
        ([large, long_tag], "record_too_large"),
        ([{"data": 1}, missing, large], "invalid_request"),
    ):
        topic.post({"records": records}).refused(400, code)
    assert topic.state()["head_seq"] == 0


def test_a_window_of_nothing_remembers_nothing(new_topic: NewTopic) -> None:
    topic = new_topic(idempotency_window_ms=0)
    for _ in range(20):
        assert not topic.post({"records": [{"data": 1}], "idempotency_key": "k"}).json["deduped"]


def test_a_record_holds_one_mebibyte_of_data_and_meta(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.write("x" * (MIB - 2))
    assert topic.state()["bytes"] == MIB
    topic.post({"records": [{"data": 1}, {"data": "x" * (MIB - 1)}]}).refused(400, "record_too_large")
    meta = {"m": "y"}
    room = MIB - len('{"m":"y"}') - 2
    topic.records({"data": "x" * room, "meta": meta})
    topic.post({"records": [{"data": "x" * (room + 1), "meta": meta}]}).refused(400, "record_too_large")
    spaced = b'{"records":[{"data":[%b%b1]}]}' % (b'"%b",' % (b"x" * 1000), b" " * (2 * MIB))
    topic.post(spaced).ok()
    assert topic.state()["head_seq"] == 3


def test_checks_run_in_order_batch_size_key_records_topic(unborn: TopicHandle) -> None:
    bad = {"data": 1, "tag": "x" * 257}
    long_key = "k" * 257
    many = [bad] * 10_001
    unborn.post({"records": many, "idempotency_key": long_key, "create": False}).refused(
        400, "batch_too_large"
    )
    for wrong in ({"data": 1, "tag": 5}, {"data": 1, "node": []}, "text"):
        unborn.post({"records": [*many[1:], wrong]}).refused(400, "batch_too_large")
        unborn.post({"records": [wrong]}).refused(400, "invalid_request")
    unborn.post({"records": [{"data": "x" * MIB}], "idempotency_key": long_key}).refused(
        400, "invalid_request"
    )
    unborn.post({"records": [{"data": "x" * MIB}], "create": False}).refused(400, "record_too_large")
    unborn.post({"records": [bad], "create": False}).refused(400, "invalid_request")
    unborn.post({"records": [{"data": 1}], "create": False}).refused(404, "topic_not_found")


# Creation on the way


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({}, 201),
        ({"create": True}, 201),
        ({"create": False}, 404),
        ({"create": None}, 201),
        ({"config": None}, 201),
        ({"config": {}}, 201),
        ({"config": {"auto_create": True}}, 201),
        ({"config": {"auto_create": False}}, 404),
        ({"create": True, "config": {"auto_create": False}}, 201),
        ({"create": False, "config": {"auto_create": True}}, 404),
        ({"create": None, "config": {"auto_create": False}}, 404),
    ],
)
def test_who_may_bring_a_topic_into_being(unborn: TopicHandle, fields: dict[str, Any], status: int) -> None:
    answer = unborn.post({"records": [{"data": 1}], **fields})
    if status == 404:
        assert answer.refused(404, "topic_not_found") == {"topic": unborn.name}
        unborn.server.send("GET", unborn.path).refused(404, "topic_not_found")
    else:
        body = answer.ok(201)
        assert (body["created"], body["first_seq"]) == (True, 1)
        expected = (fields.get("config") or {}).get("auto_create", True)
        assert unborn.state()["config"]["auto_create"] is expected


def test_on_an_existing_topic_create_and_config_have_no_effect(new_topic: NewTopic) -> None:
    topic = new_topic(auto_create=False, cap_records=5)
    for fields in ({"create": False}, {"create": True}, {"config": {"auto_create": False, "cap_records": 1}}):
        body = topic.post({"records": [{"data": 1}], **fields}).ok(200)
        assert body["created"] is False
    assert topic.state()["config"]["cap_records"] == 5
    assert topic.state()["count"] == 3
    topic.post({"records": [{"data": 1}], "config": {"type": "queue"}}).ok(200)
    topic.post({"records": [{"data": 1}], "config": {"type": "heap"}}).refused(400, "invalid_request")


def test_an_inline_config_applies_to_the_very_write_that_brings_it(unborn: TopicHandle) -> None:
    body = {"records": [{"data": number} for number in range(5)], "config": {"cap_records": 2, "lease_ms": 1}}
    unborn.post(body).ok(201)
    assert unborn.seqs() == [4, 5]
    assert unborn.state()["config"]["lease_ms"] == 100


def test_a_bad_inline_config_creates_nothing(unborn: TopicHandle) -> None:
    for config in ({"discard": "never"}, {"ttl_ms": -1}, {"dead_letter": "-"}):
        unborn.post({"records": [{"data": 1}], "config": config}).refused(400, "invalid_request")
    unborn.server.send("GET", unborn.path).refused(404, "topic_not_found")


def test_a_topic_created_for_a_write_its_own_caps_refuse_remains(unborn: TopicHandle) -> None:
    config = {"cap_records": 2, "discard": "reject"}
    unborn.post({"records": [{"data": 1}] * 3, "config": config}).refused(400, "record_too_large")
    state = unborn.state()
    assert (state["head_seq"], state["config"]["cap_records"]) == (0, 2)
    assert unborn.write(1)["created"] is False


def test_concurrent_first_writes_create_once(server: Server, unborn: TopicHandle) -> None:
    statuses: list[int] = []
    seqs: list[int] = []

    def write() -> None:
        client = server.client()
        answer = client.send("POST", unborn.path, {"records": [{"data": 1}, {"data": 2}]})
        statuses.append(answer.status)
        seqs.extend(answer.json["seqs"])
        assert answer.json["created"] is (answer.status == 201)
        client.close()

    in_parallel(*[write] * 8)
    assert sorted(statuses) == [200] * 7 + [201]
    assert sorted(seqs) == list(range(1, 17))


# Idempotent retries


def test_a_retry_gets_the_first_answer_again(new_topic: NewTopic) -> None:
    topic = new_topic()
    topic.write("before")
    first = topic.write("a", "b", idempotency_key="k")
    topic.write("after")
    again = topic.write("something", "else", "entirely", idempotency_key="k")
    assert (first["deduped"], again["deduped"], again["created"]) == (False, True, False)
    for key in ("first_seq", "last_seq", "seqs", "count", "head_seq", "topic"):
        assert again[key] == first[key]
    assert [record["data"] for record in topic.diff()["records"]] == ["before", "a", "b", "after"]


def test_a_retry_of_the_creating_write_is_200(unborn: TopicHandle) -> None:
    body = {"records": [{"data": 1}], "idempotency_key": "k"}
    assert unborn.post(body).ok(201)["created"] is True
    again = unborn.post(body).ok(200)
    assert (again["created"], again["deduped"], again["seqs"]) == (False, True, [1])
    assert "seqs" not in unborn.post(body, "?return_seqs=false").ok(200)


def test_the_header_counts_only_when_the_body_is_silent(new_topic: NewTopic) -> None:
    topic = new_topic()
    records = {"records": [{"data": 1}]}
    header = {"Idempotency-Key": "h"}
    assert topic.post(records, **header).ok()["deduped"] is False
    assert topic.post(records, **header).ok()["deduped"] is True
    assert topic.post(records | {"idempotency_key": "h"}).ok()["deduped"] is True
    assert topic.post(records | {"idempotency_key": None}, **header).ok()["deduped"] is True
    assert topic.post(records | {"idempotency_key": "b"}, **header).ok()["deduped"] is False
    assert topic.post(records | {"idempotency_key": "b"}).ok()["deduped"] is True
    assert topic.state()["head_seq"] == 2


def test_different_headers_are_different_keys_in_any_encoding(server: Server, new_topic: NewTopic) -> None:
    topic = new_topic()
    body = b'{"records":[{"data":1}]}'
    seqs = []
    for key in (b"\xe9", b"\xe8", b"\xc3\xa9", b"\xe9" * 256, b"\xe9", b"k", b"k  "):
        head = (
            b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" % topic.path.encode()
        )
        head += b"Idempotency-Key: %b\r\nContent-Length: %d\r\n\r\n" % (key, len(body))
        with server.raw(head + body) as wire:
            seqs.append(wire.read().ok()["first_seq"])
    assert seqs == [1, 2, 3, 4, 1, 5, 5]


def test_keys_are_at_most_256_bytes(new_topic: NewTopic) -> None:
    topic = new_topic()
    records = {"records": [{"data": 1}]}
    topic.post(records | {"idempotency_key": "k" * 256}).ok()
    topic.post(records | {"idempotency_key": "é" * 128}).ok()
    topic.post(records | {"idempotency_key": "k" * 257}).refused(400, "invalid_request")
    topic.post(records | {"idempotency_key": "é" * 129}).refused(400, "invalid_request")
    topic.post(records, **{"Idempotency-Key": "k" * 257}).refused(400, "invalid_request")
    assert topic.post(records, **{"Idempotency-Key": "k" * 256}).ok()["deduped"] is True
    assert topic.state()["head_seq"] == 2


def test_keys_belong_to_one_topic_and_die_with_it(new_topic: NewTopic) -> None:
    one, other = new_topic(), new_topic()
    one.write(1, idempotency_key="k")
    assert other.write(1, idempotency_key="k")["deduped"] is False
    one.drop().ok()
    assert one.write(1, idempotency_key="k")["deduped"] is False


def test_keys_expire_after_the_window(new_topic: NewTopic) -> None:
    topic = new_topic(idempotency_window_ms=300)
    topic.write(1, idempotency_key="k")
    assert topic.write(1, idempotency_key="k")["deduped"] is True
    time.sleep(0.45)
    late = topic.write(1, idempotency_key="k")
    assert (late["deduped"], late["seqs"]) == (False, [2])


def test_the_window_counts_from_the_first_write(new_topic: NewTopic) -> None:
    topic = new_topic(idempotency_window_ms=500)
    topic.write(1, idempotency_key="k")
    for _ in range(3):
        time.sleep(0.1)
        topic.write(1, idempotency_key="k")
    time.sleep(0.35)
    assert topic.write(1, idempotency_key="k")["deduped"] is False


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_concurrent_writes_with_one_key_commit_once(
    server: Server, new_topic: NewTopic, durability: str
) -> None:
    topic = new_topic(durability=durability)
    answers: list[Any] = []
    barrier = threading.Barrier(8)

    def write() -> None:
        client = server.client()
        barrier.wait()
        answers.append(
            client.send("POST", topic.path, {"records": [{"data": 1}], "idempotency_key": "k"}).ok()
        )
        client.close()

    in_parallel(*[write] * 8)
    assert [answer["seqs"] for answer in answers] == [[1]] * 8
    assert sorted(answer["deduped"] for answer in answers) == [False] + [True] * 7
    assert topic.state()["head_seq"] == 1


def test_a_retry_succeeds_although_the_topic_is_full_by_now(new_topic: NewTopic) -> None:
    topic = new_topic(cap_records=2, discard="reject")
    topic.write(1, 2, idempotency_key="k")
    topic.post({"records": [{"data": 3}]}).refused(422, "topic_full")
    again = topic.write(1, 2, idempotency_key="k")
    assert (again["deduped"], again["seqs"]) == (True, [1, 2])
    # Even a retry that could never fit: it adds nothing.
    assert topic.write(1, 2, 3, idempotency_key="k")["deduped"] is True


def test_a_refused_write_does_not_use_up_its_key(new_topic: NewTopic) -> None:
    topic = new_topic(cap_records=1, discard="reject")
    topic.write(1)
    body = {"records": [{"data": 2}], "idempotency_key": "k"}
    topic.post(body).refused(422, "topic_full")
    topic.delete(before_seq=2)
    answer = topic.post(body).ok()
    assert (answer["deduped"], answer["seqs"]) == (False, [2])


# Caps


def test_old_records_make_room(new_topic: NewTopic) -> None:
    topic = new_topic(cap_records=3)
    assert topic.write(1, 2, 3, 4, 5)["seqs"] == [1, 2, 3, 4, 5]
    state = topic.state()
    assert (state["count"], state["bytes"], state["earliest_seq"]) == (3, 3, 3)


def test_bytes_make_room_too(new_topic: NewTopic) -> None:
    topic = new_topic(cap_bytes=20)
    topic.write("12345678")
    topic.write("12345678")
    assert topic.seqs() == [1, 2]
    topic.write("1")
    assert topic.seqs() == [2, 3]
    topic.write("x" * 18)
    assert topic.seqs() == [4]
    assert topic.state()["bytes"] == 20
    assert topic.write("x" * 50)["seqs"] == [5]
    state = topic.state()
    assert (state["count"], state["bytes"], state["earliest_seq"], state["head_seq"]) == (0, 0, 6, 5)


def test_whichever_cap_is_hit_first_acts(new_topic: NewTopic) -> None:
    topic = new_topic(cap_records=3, cap_bytes=10)
    topic.write("123456", "1", 1)
    assert topic.seqs() == [2, 3]
    topic.write(1, 1)
    assert topic.seqs() == [3, 4, 5]


def test_a_full_reject_topic_refuses_and_says_so(new_topic: NewTopic) -> None:
    topic = new_topic(cap_records=2, discard="reject")
    topic.write(1)
    topic.write(2)
    detail = topic.post({"records": [{"data": 3}]}).refused(422, "topic_full")
    assert detail == {"topic": topic.name, "cap_records": 2, "cap_bytes": 0, "head_seq": 2, "earliest_seq": 1}
    topic.post({"records": [{"data": 3}] * 3}).refused(400, "record_too_large")
    assert topic.state()["head_seq"] == 2
    assert topic.state()["bytes"] == 2
    topic.delete(before_seq=2)
    assert topic.write(3)["seqs"] == [3]
    assert topic.gap(0) is None


def test_a_reject_topic_full_by_bytes(new_topic: NewTopic) -> None:
    topic = new_topic(cap_bytes=10, discard="reject")
    topic.write("123456")
    detail = topic.post({"records": [{"data": "1"}]}).refused(422, "topic_full")
    assert (detail["cap_bytes"], detail["cap_records"]) == (10, 0)
    topic.write(12)
    topic.post({"records": [{"data": "123456789"}]}).refused(400, "record_too_large")
    topic.post({"records": [{"data": "1234"}, {"data": "1234"}]}).refused(400, "record_too_large")
    assert topic.state()["head_seq"] == 2


def test_expired_records_occupy_nothing(new_topic: NewTopic) -> None:
    topic = new_topic(cap_records=2, discard="reject", ttl_ms=150)
    topic.write(1, 2)
    topic.post({"records": [{"data": 3}]}).refused(422, "topic_full")
    time.sleep(0.3)
    assert topic.write(3, 4)["seqs"] == [3, 4]


def test_writers_that_send_ahead_are_all_answered_when_the_topic_fills_up(
    server: Server, new_topic: NewTopic
) -> None:
    topic = new_topic(cap_records=37, discard="reject")
    body = b'{"records":[{"data":1}]}'
    head = b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    request = head + b"Content-Length: %d\r\n\r\n%b"
    seqs: list[int] = []

    def send_ahead() -> None:
        with server.raw(request % (topic.path.encode(), len(body), body) * 20) as wire:
            answers = [wire.read() for _ in range(20)]
        seqs.extend(answer.ok()["first_seq"] for answer in answers if answer.status == 200)
        for answer in answers:
            if answer.status != 200:
                answer.refused(422, "topic_full")

    in_parallel(*[send_ahead] * 8)
    assert sorted(seqs) == list(range(1, 38))


def test_concurrent_writes_never_overfill_a_reject_topic(server: Server, new_topic: NewTopic) -> None:
    topic = new_topic(cap_records=10, discard="reject", durability="fsync")
    statuses: list[int] = []

    def write() -> None:
        client = server.client()
        statuses.extend(client.send("POST", topic.path, {"records": [{"data": 1}]}).status for _ in range(4))
        client.close()

    in_parallel(*[write] * 6)
    assert sorted(statuses) == [200] * 10 + [422] * 14
    assert topic.state()["count"] == 10


# The first seq is a setting


def test_topics_may_count_from_another_number(boot: Boot) -> None:
    server = boot(TOPICS_SEQ_BASE="1000")
    topic = server.topic("based")
    state = topic.state()
    assert (state["head_seq"], state["earliest_seq"], state["next_seq"]) == (999, 1000, 1000)
    assert topic.diff(999)["tombstone"] is None
    assert topic.write("a", "b")["seqs"] == [1000, 1001]
    assert topic.gap(0) is None
    assert topic.seqs(0) == [1000, 1001]
    recreated = topic.diff(5000)
    assert recreated["tombstone"]["reason"] == "recreated"
    assert recreated["tombstone"]["gap_from"] == 1000
    assert [record["$seq"] for record in recreated["records"]] == [1000, 1001]
    server.restart(cleanly=False)
    assert topic.write("c")["seqs"] == [1002]
    topic.drop().ok()
    assert topic.write("d")["seqs"] == [1000]


def test_no_digit_of_a_record_changes_where_a_limit_has_too_many(server: Server, unborn: TopicHandle) -> None:
    """Numbers that are limited may have any number of digits; those of others are nobody's business."""
    long, endless = b"1" * 1500, b"2" * 5000
    records = b'[{"data":%b,"meta":{"k":%b}},{"data":{"n":%b}}]' % (long, long, endless)
    body = b'{"create":true,"config":{"lease_ms":%b},"records":%b}' % (b"9" * 4400, records)
    server.send("POST", unborn.path, body).ok(201)
    assert unborn.state()["config"]["lease_ms"] == 86_400_000
    kept = server.send("POST", unborn.path + "/diff", b'{"include_meta":true}').body
    assert kept.count(long) >= 2
    assert endless in kept
    assert b"9" * 100 not in kept


@pytest.mark.parametrize("levels", [900, 960, 970, 975, 980, 2000])
def test_a_deep_meta_is_taken_or_refused(server: Server, unborn: TopicHandle, levels: int) -> None:
    meta = b'{"k":%b1%b,"x":"%b"}' % (b"[" * levels, b"]" * levels, b"x" * 500)
    answer = server.send("POST", unborn.path, b'{"records":[{"data":1,"meta":%b}]}' % meta)
    assert answer.status in (201, 400), answer.text
    assert levels != 2000 or answer.refused(400, "invalid_request") is None
