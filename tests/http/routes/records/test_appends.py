"""Single records written together: each writer is answered as if it had been alone."""

import json

import pytest

from tests.node.lab import NodeLab
from topics.http.routes.records.appends import AppendRoutes
from topics.http.routes.service import Service
from topics.http.wire.exchange import Exchange
from topics.http.wire.routing import Body, Route
from topics.log.lifecycle import drop_topic
from topics.log.write.append_request import parse_append
from topics.storage.frame import Kind
from topics.values.errors import ApiError

ROUTE = Route(method="POST", template="/v0/topics/:topic", handler=lambda exchange: None, body=Body.REQUIRED)


class Caller(Exchange):
    """An exchange without a connection; it keeps its answer."""

    def __init__(self, topic, body, target=b"/v0/topics/t", headers=None):
        super().__init__(None, b"POST", target, headers or {})
        self.name = topic
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.started = 1.0
        self.noticed = False
        self.route = ROUTE
        self.answer = self.error = self.status = None

    def reply(self, body, status=200, *_):
        assert self.answer is None
        assert self.error is None
        self.answer, self.status = json.loads(body), status

    def is_noted(self, elapsed_s):
        return self.noticed

    def reply_uncounted(self, body):
        self.reply(body)
        return True

    def fail(self, error, status=None):
        assert self.answer is None
        assert self.error is None
        self.error = error


@pytest.fixture
def lab(tmp_path):
    lab = NodeLab(tmp_path / "data", segment_max_events=1000)
    lab.put("t")
    yield lab
    lab.kill()


@pytest.fixture
def routes(lab):
    return AppendRoutes(Service(lab.node))


def plain(value, **more):
    return {"records": [{"data": value}], **more}


def send(lab, routes, *callers):
    """All in one turn of the loop."""
    for caller in callers:
        try:
            routes.append(caller)
        except ApiError as error:
            caller.fail(error)
    lab.engine.queue.sync_now()
    return callers


def data_of(lab, topic="t"):
    return [
        record["data"]
        for record in json.loads(b"[" + lab.diff(topic).rows.rstrip(b"\n").replace(b"\n", b",") + b"]")
    ]


def test_one_frame_and_an_answer_for_each(lab, routes):
    before = lab.engine.counters.frames
    callers = send(lab, routes, *(Caller("t", plain(value)) for value in "abc"))
    assert [caller.answer["seqs"] for caller in callers] == [[1], [2], [3]]
    for seq, caller in enumerate(callers, 1):
        assert caller.status == 200
        expected = {"topic": "t", "first_seq": seq, "last_seq": seq, "head_seq": seq, "count": 1}
        assert caller.answer.items() >= (expected | {"created": False, "deduped": False}).items()
        assert set(caller.answer["performance"]) == {"server_total_ms", "wal_append_ms", "fsync_ms"}
    assert lab.engine.counters.frames - before == 3
    appends = [frame for frame in lab.frames() if frame.kind == Kind.APPEND]
    assert len(appends) == 1
    lab.restart()
    assert data_of(lab) == ["a", "b", "c"]


def test_the_same_fields_as_a_write_that_goes_alone(lab, routes):
    together, alone = send(lab, routes, Caller("t", plain(1)), Caller("t", plain(2, node="n")))
    assert list(together.answer) == list(alone.answer)
    assert list(together.answer["performance"]) == list(alone.answer["performance"])


def test_a_megabyte_of_records_and_what_stands_around_it_needs_no_thread(lab, routes):
    """There is no loop here: whatever went aside would not come back."""
    records = [{"data": "x" * 1000} for _ in range((1 << 20) // 1000)]
    (caller,) = send(lab, routes, Caller("t", {"records": records, "idempotency_key": "k" * 200}))
    assert len(caller.body) > 1 << 20
    assert caller.answer["count"] == len(records)


def test_they_are_counted_together_unless_somebody_looks_closer(lab, routes):
    (route,) = routes.routes()
    send(lab, routes, *(Caller("t", plain(value)) for value in "abc"))
    assert route.timings[2].count == 3
    watched = [Caller("t", plain(value)) for value in "de"]
    for caller in watched:
        caller.noticed = True
    send(lab, routes, *watched)
    assert [caller.answer["first_seq"] for caller in watched] == [4, 5]
    # Their own reply has counted them.
    assert route.timings[2].count == 3


def test_each_topic_gets_its_own(lab, routes):
    lab.put("u")
    send(lab, routes, *(Caller(name, plain(name)) for name in "tutu"))
    assert data_of(lab) == ["t", "t"]
    assert data_of(lab, "u") == ["u", "u"]


def test_a_full_topic_takes_what_fits_and_refuses_the_rest(lab, routes):
    lab.put("t", cap_records=2, discard="reject")
    callers = send(lab, routes, *(Caller("t", plain(value)) for value in "abc"))
    assert [caller.error and caller.error.code for caller in callers] == [None, None, "topic_full"]
    assert data_of(lab) == ["a", "b"]


def test_a_writer_that_goes_on_after_a_refusal_is_not_left_waiting(lab, routes):
    """Its next request comes while the flush that refused the last one is under way."""
    lab.put("t", cap_records=1, discard="reject")
    next_one = Caller("t", plain("c"))

    class Pipelining(Caller):
        def fail(self, error, status=None):
            super().fail(error, status)
            routes.append(next_one)

    routes.append(Caller("t", plain("a")))
    routes.append(Pipelining("t", plain("b")))
    woken = []
    lab.engine.queue.wake = lambda: woken.append(True)
    lab.engine.queue.flush()
    assert woken
    lab.engine.queue.flush()
    assert next_one.error.code == "topic_full"


def test_whoever_had_company_waits_for_it(lab, routes):
    lab.put("t")
    queue = lab.engine.queue
    for company, waits in ((1, False), (4, False), (1, True), (1, False)):
        for _ in range(company):
            routes.append(Caller("t", plain("x")))
        assert queue.expects_more is waits
        queue.flush()
        assert not queue.expects_more


def test_a_cap_keeps_the_newest(lab, routes):
    lab.put("t", cap_records=2)
    callers = send(lab, routes, *(Caller("t", plain(value)) for value in "abc"))
    assert [caller.answer["head_seq"] for caller in callers] == [1, 2, 3]
    assert data_of(lab) == ["b", "c"]


def test_a_topic_that_goes_meanwhile_is_made_again(lab, routes):
    first, second = Caller("t", plain("a")), Caller("t", plain("b"))
    routes.append(first)
    routes.append(second)
    drop_topic(lab.engine, "t", False, lambda dropped: None, lambda error: None)
    lab.engine.queue.sync_now()
    assert (first.status, first.answer["created"]) == (201, True)
    assert (second.status, second.answer["created"]) == (200, False)


def test_after_a_failed_commit_everybody_hears_of_it(lab, routes):
    callers = [Caller("t", plain(1)), Caller("t", plain(2))]
    for caller in callers:
        routes.append(caller)
    lab.engine.queue.give_up(OSError("no"))
    lab.engine.queue.flush()
    assert [caller.error.code for caller in callers] == ["internal", "internal"]


def test_more_than_fit_in_one_frame(lab, routes):
    callers = send(lab, routes, *(Caller("t", plain(value)) for value in range(2500)))
    assert [caller.answer["first_seq"] for caller in callers] == list(range(1, 2501))


@pytest.mark.parametrize(
    ("body", "options"),
    [
        (plain(1, create=True), {}),
        (plain(1, return_seqs=False), {}),
        (plain(1, config={}), {}),
        (plain(1, node="n"), {}),
        (plain(1, disable_backpressure=True), {}),
        (plain("x" * 5000), {}),
        (plain(1), {"target": b"/v0/topics/t?return_seqs=false"}),
    ],
)
def test_whatever_asks_for_more_goes_alone(lab, routes, body, options):
    others = [Caller("t", plain(0)) for _ in range(3)]
    *_, caller = send(lab, routes, *others, Caller("t", body, **options))
    assert "first_seq" in caller.answer
    assert [frame.kind for frame in lab.frames()].count(Kind.APPEND) == 2


def test_tags_and_several_records_travel_too(lab, routes):
    callers = [
        Caller("t", {"records": [{"data": 1, "tag": "x"}]}),
        Caller("t", {"records": [{"data": 2}, {"data": 3, "tag": "y"}]}),
        Caller("t", plain(4)),
    ]
    send(lab, routes, *callers)
    told = {caller.answer["first_seq"]: caller.answer["seqs"] for caller in callers}
    assert sorted(seq for seqs in told.values() for seq in seqs) == [1, 2, 3, 4]
    data = data_of(lab)
    assert [[data[seq - 1] for seq in caller.answer["seqs"]] for caller in callers] == [[1], [2, 3], [4]]
    assert [caller.answer["count"] for caller in callers] == [1, 2, 1]


def test_a_new_topic_is_created_by_the_first(lab, routes):
    first, second = send(lab, routes, Caller("new", plain(1)), Caller("new", plain(2)))
    assert (first.status, second.status) == (201, 200)


@pytest.mark.parametrize(
    "body", [b"[]", b"{}", b'{"records":[]}', b'{"records":[{}]}', b'{"records":[1]}', b"x"]
)
def test_what_is_wrong_is_wrong_here_too(lab, routes, body):
    (caller,) = send(lab, routes, Caller("t", body))
    assert caller.error.code == "invalid_request"


def test_payloads_stay_as_written():
    body = b'{"records":[{"data":{"b":1e400,"a":[0.10]}}]}'
    assert b'"data":{"b":1e400,"a":[0.10]}}' in bytes(parse_append(body).batch.render(1, 1))
