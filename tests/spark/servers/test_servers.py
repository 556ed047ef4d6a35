"""Several servers as one: who has which topic, and what becomes of those that do not answer."""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pyspark_topics.client import Client
from pyspark_topics.errors import OptionError
from pyspark_topics.micro_batch_stream import StreamReader
from pyspark_topics.offsets import ELSEWHERE, StreamOffset, read_stored
from pyspark_topics.options import ServerOptions, parse_read
from pyspark_topics.partitions import ranges_between
from pyspark_topics.rows import spark_schema
from pyspark_topics.servers import FEW, Servers
from pyspark_topics.subscription import subscribed
from tests.spark.servers.fleet import Simulated, simulated, state
from topics.client import Refused, Unreachable


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def servers(opened: ExitStack) -> Callable[[str], Servers]:
    def connect(url: str) -> Servers:
        client = opened.enter_context(ServerOptions(url, patience_s=0.1).client())
        assert isinstance(client, Servers)
        return client

    return connect


@pytest.fixture
def reader(opened: ExitStack) -> Callable[..., StreamReader]:
    def start(url: str, **options: str) -> StreamReader:
        given = {"url": url, "patience": "0.1", "startingOffsets": "earliest", **options}
        chosen = parse_read(given, streaming=True)
        stream = StreamReader(chosen, spark_schema(chosen))
        opened.callback(stream.stop)
        return stream

    return start


Connect = Callable[[str], Servers]
Start = Callable[..., StreamReader]


# --- addresses ----------------------------------------------------------------------------------------------


def test_one_address_is_one_server_however_often_it_is_named() -> None:
    for url in ("http://a:4000", "http://a:4000/", " http://a:4000 , http://a:4000/"):
        client = ServerOptions(url).client()
        assert type(client) is Client
        assert client.url == "http://a:4000"


@pytest.mark.parametrize("url", ["http://a:4000,b:4000", "nonsense", ","])
def test_what_is_no_address_is_said(url: str) -> None:
    with pytest.raises(ValueError, match="is not the address of a server"):
        ServerOptions(url).client()


# --- who has which topic ------------------------------------------------------------------------------------


def test_topics_are_found_wherever_they_are(servers: Connect) -> None:
    with simulated(Simulated(state("orders")), Simulated(state("clicks", 5))) as url:
        client = servers(url)
        first, second = url.split(",")
        assert client.topic("clicks")["head_seq"] == 5
        assert (client.home("clicks"), client.home("orders")) == (second, "")
        assert sorted(client.topic_names()) == ["clicks", "orders"]
        assert client.home("orders") == first
        with pytest.raises(Refused, match=f"topic absent is on none of {first}, {second}"):
            client.topic("absent")


@pytest.mark.parametrize("how", [{"subscribe": "orders"}, {"subscribePattern": "o.*"}])
def test_a_topic_on_two_servers_is_an_error_that_names_both(servers: Connect, how: dict[str, str]) -> None:
    with simulated(Simulated(state("orders")), Simulated(), Simulated(state("orders"))) as url:
        first, _, third = url.split(",")
        with pytest.raises(OptionError, match=f'topic "orders" is on {first} and on {third}'):
            subscribed(servers(url), parse_read({"url": url, **how}))


def test_many_names_are_asked_for_by_list(servers: Connect) -> None:
    names = [f"t{number:04}" for number in range(FEW + 1)]
    one, two = Simulated(*map(state, names)), Simulated(state("other"))
    with simulated(one, two) as url:
        assert sorted(servers(url).states(names)) == names
    assert len(one.asked) == len(two.asked) == 1


def test_where_a_topic_is_known_to_be_no_other_server_is_asked_for_a_while(servers: Connect) -> None:
    one, two = Simulated(state("orders")), Simulated()
    with simulated(one, two) as url:
        client = servers(url)
        for _ in range(3):
            client.states(["orders"])
        assert (len(one.asked), len(two.asked)) == (3, 1)
        copy = pickle.loads(pickle.dumps(client))
        with copy:
            assert copy.topic("orders")["head_seq"] == 20
        assert len(two.asked) == 1


def test_a_topic_that_went_to_another_server_is_found_there(servers: Connect) -> None:
    one, two = Simulated(state("orders")), Simulated()
    with simulated(one, two) as url:
        client = servers(url)
        client.states(["orders"])
        two.add(one.topics.pop("orders"))
        assert list(client.states(["orders"])) == ["orders"]
        assert client.home("orders") == two.url


# --- servers that do not answer -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["is_down", "is_mute"])
def test_a_silent_server_holds_up_only_those_who_need_it(servers: Connect, kind: str) -> None:
    one, two = Simulated(state("orders")), Simulated(state("clicks"))
    setattr(two, kind, True)
    with simulated(one, two) as url:
        client = servers(url)
        assert list(client.states(["orders"])) == ["orders"]
        assert list(client.silent) == [two.url]
        assert list(client.states(None, patient=False)) == ["orders"]
        options = parse_read({"url": url, "subscribe": "orders,clicks"})
        found, missing = subscribed(client, options, patient=False)
        assert (list(found), missing) == (["orders"], [])
    two.is_down = two.is_mute = False


def test_who_needs_a_silent_server_is_told_which(servers: Connect) -> None:
    one, two = Simulated(state("orders")), Simulated(state("clicks"))
    two.is_down = True
    with simulated(one, two) as url:
        client = servers(url)
        for ask in (lambda: client.topic("clicks"), lambda: list(client.topic_names())):
            with pytest.raises(Unreachable, match=f"no answer from the topics server at {two.url}"):
                ask()


def test_a_mute_server_is_waited_for_once(servers: Connect) -> None:
    one, two = Simulated(state("orders")), Simulated(state("clicks"))
    two.is_mute = True
    with simulated(one, two) as url:
        client = servers(url)
        for _ in range(3):
            client.states(None, patient=False)
        assert client.silent == {two.url: "still no answer"}
        assert len(two.asked) == 1


def test_what_a_server_refuses_is_raised_with_its_address(servers: Connect) -> None:
    class Closed(Simulated):
        def _answer(self, target: str) -> bytes:
            body = b'{"error": {"code": "forbidden", "message": "not with this key"}}'
            return b"HTTP/1.1 403 x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)

    closed = Closed()
    with simulated(Simulated(state("orders")), closed) as url:
        client = servers(url)
        with pytest.raises(Refused, match=f"not with this key \\(at {closed.url}\\)"):
            client.states(["orders"])


# --- writing ------------------------------------------------------------------------------------------------


class Noted(Client):
    """Takes parts and commits; refuses the row with this number."""

    def __init__(self, url: str, bad_row: int | None = None) -> None:
        super().__init__(url)
        self.parts: dict[str, list[str]] = {}
        self.commits: list[tuple[str, int, list[str]]] = []
        self._bad_row = bad_row

    def stage_part(self, stage: str, part: str, arrow_stream: bytes, topic: str | None) -> list[str]:
        if self._bad_row is not None:
            raise Refused(400, "invalid_request", f"row {self._bad_row}: data is not JSON")
        self.parts[part] = pa.ipc.open_stream(arrow_stream).read_all()["data"].to_pylist()
        return [part]

    def commit_stage(self, stage: str, identity: str, batch: int, parts: list[str]) -> dict[str, object]:
        self.commits.append((identity, batch, parts))
        return {}


def rows(*targets: str | None) -> bytes:
    data = [str(number) for number in range(len(targets))]
    batch = pa.RecordBatch.from_pydict({"topic": pa.array(targets, pa.string()), "data": data})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


def test_rows_go_to_the_servers_of_their_topics_and_new_topics_to_the_first(servers: Connect) -> None:
    with simulated(Simulated(state("a")), Simulated(state("b")), Simulated(state("c"))) as url:
        client = servers(url)
        noted = client._clients = {one: Noted(one) for one in url.split(",")}
        first, second, third = noted.values()
        parts = client.stage_part("s", "p", rows("b", "a", "new", None, "b"), "b")
        assert [one.parts for one in noted.values()] == [{"p": ["1", "2"]}, {"p": ["0", "3", "4"]}, {}]
        client.commit_stage("s", "id", 3, parts)
        assert first.commits == second.commits == [("id", 3, ["p"])]
        assert third.commits == []
        client.commit_stage("s", "id", 4, [])
        assert first.commits[1:] == [("id", 4, [])]  # a batch without rows is noted, too
        assert len(second.commits) == 1


def test_a_bad_row_is_named_as_the_writer_counts(servers: Connect) -> None:
    with simulated(Simulated(state("a")), Simulated(state("b"))) as url:
        client = servers(url)
        first, second = url.split(",")
        client._clients = {first: Noted(first), second: Noted(second, bad_row=1)}
        with pytest.raises(Refused, match="row 3: data is not JSON"):
            client.stage_part("s", "p", rows("b", "a", "a", "b"), None)


def test_a_topic_that_may_be_on_a_silent_server_is_not_made_on_another(servers: Connect) -> None:
    one, two = Simulated(state("a")), Simulated(state("b"))
    two.is_down = True
    with simulated(one, two) as url:
        client = servers(url)
        client._clients = {each: Noted(each) for each in url.split(",")}
        assert client.stage_part("s", "p", rows("a"), None) == [f"{one.url} p"]
        with pytest.raises(Unreachable, match=two.url):
            client.stage_part("s", "p", rows("b"), None)


# --- streams ------------------------------------------------------------------------------------------------


def test_offsets_say_which_server_they_belong_to(reader: Start) -> None:
    with simulated(Simulated(state("orders")), Simulated(state("clicks", 5, 3))) as url:
        first, second = url.split(",")
        stream = reader(url, subscribe="orders,clicks,later")
        begin = stream.initialOffset()
        assert begin == {
            first: {"orders": {"seq": 0, "epoch": 7}},
            second: {"clicks": {"seq": 0, "epoch": 3}},
            "later": {"seq": 0, "epoch": 0},
        }
        end = stream.latestOffset(begin, ReadAllAvailable())
        tasks = reader(url, subscribe="orders,clicks,later").partitions(begin, end)  # as after a restart
        assert {one.topic: one.server for task in tasks for one in task.ranges} == {
            "orders": first,
            "clicks": second,
        }


def test_a_silent_server_delays_its_own_topics_and_it_is_said(
    reader: Start, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = Simulated(state("orders")), Simulated(state("clicks"))
    with simulated(one, two) as url:
        stream = reader(url, subscribePattern=".*")
        begin = stream.initialOffset()
        two.is_down = True
        two.add(state("clicks", 30))
        end = stream.latestOffset(begin, ReadAllAvailable())
        assert read_stored(end).offsets == {"orders": StreamOffset(20, 7), "clicks": StreamOffset(0, 7)}
        assert read_stored(end).homes["clicks"] == two.url
        assert f"{two.url}: its topics wait, the others go on" in caplog.text
        assert stream.latestOffset(end, ReadAllAvailable()) == end
        two.is_down = False
        assert read_stored(stream.latestOffset(end, ReadAllAvailable())).offsets["clicks"] == StreamOffset(
            30, 7
        )
        assert f"{two.url} answers again" in caplog.text


def test_a_stream_does_not_begin_or_end_without_a_server(reader: Start) -> None:
    """Where its topics begin, or what there is now, only it can say."""
    one, two = Simulated(state("orders")), Simulated(state("clicks"))
    two.is_down = True
    with simulated(one, two) as url:
        stream = reader(url, subscribePattern=".*")
        for ask in (stream.initialOffset, stream.prepareForTriggerAvailableNow):
            with pytest.raises(Unreachable, match=two.url):
                ask()


def test_a_topic_on_another_server_is_another_topic_even_with_the_same_epoch(reader: Start) -> None:
    one, two = Simulated(state("orders", 20)), Simulated()
    with simulated(one, two) as url:
        stream = reader(url, subscribe="orders")
        at = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
        two.add(state("orders", 25))
        del one.topics["orders"]
        end = stream.latestOffset(at, ReadAllAvailable())
        assert end == {two.url: {"orders": {"seq": 25, "epoch": 7}}}
        (task,) = stream.partitions(at, end)
        assert [(part.start, part.to_seq) for part in task.ranges] == [(StreamOffset(20, ELSEWHERE), 25)]


def test_a_checkpoint_of_one_server_goes_on_with_more_of_them(reader: Start) -> None:
    old = {"orders": {"seq": 5, "epoch": 7}, "clicks": {"seq": 4, "epoch": 7}}
    with simulated(Simulated(state("orders")), Simulated(state("clicks"))) as url:
        first, second = url.split(",")
        end = reader(url, subscribe="orders,clicks").latestOffset(old, ReadAllAvailable())
        assert end == {
            first: {"orders": {"seq": 20, "epoch": 7}},
            second: {"clicks": {"seq": 20, "epoch": 7}},
        }
        (task,) = reader(url, subscribe="orders,clicks").partitions(old, end)
        starts = {one.topic: one.start for one in task.ranges}
        # What it read was on the first: this is another topic of that name.
        assert starts == {"orders": StreamOffset(5, 7), "clicks": StreamOffset(4, ELSEWHERE)}


def test_a_checkpoint_of_a_server_that_is_not_named_any_more_is_refused(reader: Start) -> None:
    with simulated(Simulated(state("orders"))) as url:
        stored = {"http://b:4000": {"clicks": {"seq": 5, "epoch": 7}}}
        with pytest.raises(OptionError, match='"clicks" on http://b:4000, and option "url" does not name'):
            reader(url, subscribe="orders").latestOffset(stored, ReadAllAvailable())


# --- growing ------------------------------------------------------------------------------------------------


def fleet(count: int, topics: int) -> list[Simulated]:
    each = topics // count
    return [
        Simulated(*(state(f"events.{n * each + i:05}", 1_000_000, 123_456) for i in range(each)))
        for n in range(count)
    ]


def test_offsets_of_ten_thousand_topics_stay_small(reader: Start) -> None:
    with simulated(*fleet(20, 10_000)) as url:
        stream = reader(url, subscribePattern="events.*", direct="never")
        end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
        assert len(read_stored(end).offsets) == 10_000
        assert len(json.dumps(end)) < 1_000_000


@pytest.mark.slow
def test_a_hundred_servers_with_ten_thousand_topics_are_planned_in_time(reader: Start) -> None:
    """pytest -m slow tests/spark/servers -s"""
    with simulated(*fleet(100, 10_000)) as url:
        stream = reader(url, subscribePattern="events.*", direct="never")
        begin = stream.initialOffset()
        for _ in range(3):
            before = time.monotonic()
            end = stream.latestOffset(begin, ReadAllAvailable())
            tasks = stream.partitions(begin, end)
            took = time.monotonic() - before
            size = len(json.dumps(end))
            print(f"{len(tasks)} tasks in {took:.2f} s, offsets of {size:,} bytes")
            assert took < 5
            assert size < 1_000_000
    assert len(ranges_between(*(read_stored(one).offsets for one in (begin, end)), {})) == 10_000
