"""Append requests of one turn over HTTP: each one gets the answer it would get alone."""

import json

import pytest

from tests.engine.lab import NodeLab
from topics.core.errors import ApiError
from topics.http.exchange import Exchange
from topics.http.routes.service import Service
from topics.http.routes.writes import AppendRoutes
from topics.http.routing import Body, Route

ROUTE = Route(method="POST", template="/v0/topics/:topic", handler=lambda exchange: None, body=Body.REQUIRED)


class Caller(Exchange):
    """An exchange without a connection; it keeps its answer."""

    def __init__(self, topic, body, target=b"/v0/topics/t", headers=None):
        super().__init__(None, b"POST", target, headers or {})
        self.name = topic
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.started = 1.0
        self.route = ROUTE
        self.answer = self.error = self.status = None

    def reply(self, body, status=200, *_):
        assert self.answer is None
        assert self.error is None
        self.answer, self.status = json.loads(body), status

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


def test_a_megabyte_of_records_and_what_stands_around_it_needs_no_thread(lab, routes):
    """There is no event loop here, so work on a thread would never finish."""
    records = [{"data": "x" * 1000} for _ in range((1 << 20) // 1000)]
    (caller,) = send(lab, routes, Caller("t", {"records": records, "idempotency_key": "k" * 200}))
    assert len(caller.body) > 1 << 20
    assert caller.answer["count"] == len(records)


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


def test_a_failed_commit_fails_every_request(lab, routes):
    callers = [Caller("t", plain(1)), Caller("t", plain(2))]
    for caller in callers:
        routes.append(caller)
    lab.engine.queue.give_up(OSError("no"))
    lab.engine.queue.flush()
    assert [caller.error.code for caller in callers] == ["internal", "internal"]


def test_each_request_gets_the_seqs_of_its_own_records(lab, routes):
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
