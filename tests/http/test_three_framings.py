"""One read path, three framings: diff, event stream and WebSocket tell the same from the same position."""

from __future__ import annotations

from itertools import count
from typing import Any, NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.http.streaming import EventReader, RunningApp
from tests.support import eventually
from topics.core.clock import ManualClock

WRITES = st.lists(
    st.tuples(st.sampled_from([None, "n1", "n2"]), st.sampled_from(["x", "y"]), st.integers(0, 60)),
    min_size=1,
    max_size=7,
)
CONFIGS = st.fixed_dictionaries(
    {
        "cap_records": st.sampled_from([0, 3, 8]),
        "cap_bytes": st.sampled_from([0, 0, 150]),
        "ttl_ms": st.sampled_from([0, 0, 100]),
    }
)
HAPPENINGS = {
    "write": WRITES,
    "wait": st.sampled_from([40, 101]),
    "delete": st.sampled_from([{"match": "x"}, {"match": "y"}, 0.3, 0.9]),
    "configure": CONFIGS,
    "leave": st.none(),
    "come_back": st.sampled_from([None, 0.3, 0.6, 1.0]),
    "recreate": WRITES,
}
# How often each of them happens.
KINDS = st.sampled_from(
    ["write"] * 5 + ["come_back"] * 4 + ["wait", "delete", "configure", "leave", "recreate"]
)
HISTORIES = st.lists(
    KINDS.flatmap(lambda kind: st.tuples(st.just(kind), HAPPENINGS[kind])), min_size=8, max_size=16
)
OPTIONS = st.fixed_dictionaries(
    {
        "node": st.sampled_from([None, None, "n1", ["n1", "n2"]]),
        "limit": st.sampled_from([1, 3, 1000]),
        "max_batch_bytes": st.sampled_from([0, 0, 70]),
        "include_tags": st.booleans(),
    }
)


_names = count(1)


def gap_of(told: Any) -> tuple[Any, ...]:
    keys = ("reason", "gap_from", "gap_to", "earliest_seq", "head_seq")
    return ("gap", *(told[key] for key in keys), told.get("previous_epoch"))


def batch_of(told: Any) -> tuple[Any, ...]:
    return ("records", told["from_seq"], told["to_seq"], told["head_seq"], told["records"])


class Known(NamedTuple):
    """An id that a stream has given out, and what it means."""

    id: str
    seq: int
    epoch: int
    is_first: bool


class Diff:
    """Follows `next_from_seq`; with `knows_epoch`, it says which instance its cursor is for."""

    def __init__(self, story: Story, seq: int, *, knows_epoch: bool, **epoch: int) -> None:
        self._story = story
        self.seq = seq
        self._epoch = epoch
        self._knows_epoch = knows_epoch
        # It comes from another life and cannot say which: a stream with an id of a first life.
        self._is_nameless = False

    def rewind(self, known: Known) -> None:
        """What an event id does: in the same life to the lower seq, from another one to the start."""
        mine, present = self._epoch["epoch"], self._story.epoch
        if known.epoch == mine:
            self.seq = min(self.seq, known.seq)
            return
        # The id of a first life does not say which that was; but the session has been somewhere, too.
        named = [mine] if known.is_first else [known.epoch, mine]
        former = [epoch for epoch in named if epoch != present]
        self._is_nameless = not former
        self.seq, self._epoch = 0, {"epoch": former[0] if former else known.epoch}

    def read(self) -> list[Any]:
        """Everything up to the head; the cursor after it is the last element."""
        told: list[Any] = []
        while True:
            answer = self._story.diff(from_seq=self.seq, **self._epoch)
            if self._knows_epoch:
                self._epoch = {"epoch": answer["epoch"]}
            start, gap = self.seq, answer["tombstone"]
            if gap is not None:
                if self._is_nameless:
                    del gap["previous_epoch"]
                    self._is_nameless = False
                told.append(gap_of(gap))
                start = gap["gap_to"]
            self.seq = answer["next_from_seq"]
            if answer["records"]:
                batch = {"from_seq": start, "to_seq": self.seq, **answer}
                told.append(batch_of(batch))
            if answer["caught_up"]:
                return told


class Story:
    """One topic, and readers of all three kinds who live through its history."""

    def __init__(self, app: RunningApp, config: dict[str, Any], options: dict[str, Any]) -> None:
        self.app = app
        self.name = f"t{next(_names)}"
        self.options = {key: value for key, value in options.items() if value is not None}
        self.configure(config)
        self.head = 0
        self.epoch = self.first_epoch = self.diff()["epoch"]
        self.plain, self.careful = Diff(self, 0, knows_epoch=False), Diff(self, 0, knows_epoch=True)
        self.wid = app.watch(self.name, **self.options)["wid"]
        self.socket = app.socket()
        self.stream: EventReader | None = None
        self.known: list[Known] = []
        self.come_back(None)

    def diff(self, **fields: Any) -> Any:
        body = {**self.options, **fields}
        answer = self.app.call("POST", f"/v0/topics/{self.name}/diff", body)
        assert answer.status == 200, answer.body
        return answer.json

    # --- what happens to the topic ----------------------------------------------------------------------

    def write(self, rows: list[Any]) -> None:
        records = [{"data": "d" * size, "node": node, "tag": tag} for node, tag, size in rows]
        self.head = self.app.write(self.name, *records)["head_seq"]
        if self.stream is not None:
            self.compare(is_first=False)

    def wait(self, ms: int) -> None:
        assert isinstance(self.app._clock, ManualClock)
        self.app._clock.advance(ms)

    def delete(self, what: Any) -> None:
        body = what if isinstance(what, dict) else {"before_seq": int(self.head * what) + 1}
        assert self.app.call("POST", f"/v0/topics/{self.name}/delete", body).status == 200

    def configure(self, config: dict[str, Any]) -> None:
        assert self.app.call("PUT", f"/v0/topics/{self.name}", config).status < 300

    def recreate(self, rows: list[Any]) -> None:
        self.leave()
        assert self.app.call("DELETE", f"/v0/topics/{self.name}").status == 200
        self.configure({})
        self.epoch = self.diff()["epoch"]
        self.write(rows)

    # --- the readers ------------------------------------------------------------------------------------

    def leave(self, _: None = None) -> None:
        if self.stream is not None:
            self.stream.close()
            self.stream = None
            self.socket.ask(op="unsubscribe", topic=self.name)

    def come_back(self, known: float | None) -> None:
        """With nothing in hand, or with one of the ids seen so far: the last one, or an older one."""
        self.leave()
        headers = {}
        if known is not None and self.known:
            one = self.known[int((len(self.known) - 1) * known)]
            headers["Last-Event-ID"] = one.id
            self.careful.rewind(one)
        self.stream = self.app.events(self.wid, **headers)
        self.subscribe(self.plain.seq)
        self.compare(is_first=True)

    def subscribe(self, seq: int, **epoch: int) -> None:
        answer = self.socket.ask(op="subscribe", topic=self.name, from_seq=seq, **epoch, **self.options)
        assert answer["op"] == "subscribed", answer

    def compare(self, *, is_first: bool) -> None:
        assert self.stream is not None
        expected = self.careful.read()
        if expected or is_first:
            assert self.from_stream(self.stream) == renamed(expected, is_first)
        expected = self.plain.read()
        if expected or is_first:
            assert self.from_socket() == expected
        # What is passed in silence is passed before anything else happens.
        eventually(lambda: self.app.inside(self._is_level))

    def _is_level(self) -> bool:
        feeds = self.app.app.node.fanout.topics.values()
        mine = [s for feed in feeds if feed.topic.name == self.name for s in feed.subscriptions]
        return len(mine) == 2 and all(subscription.seq == self.head for subscription in mine)

    def from_stream(self, stream: EventReader) -> list[Any]:
        told: list[Any] = []
        is_first = self.epoch == self.first_epoch
        later = {} if is_first else {"~": {self.name: self.epoch}}
        for frame in stream.until("caught-up"):
            self.known.append(Known(str(frame.id), frame.cursors[self.name], self.epoch, is_first))
            if frame.event == "tombstone":
                told.append(gap_of(frame.data))
                assert frame.cursors == {self.name: frame.data["gap_to"], **later}
            elif frame.event == "record":
                told.append(batch_of(frame.data))
                assert frame.cursors == {self.name: frame.data["to_seq"], **later}
            else:
                assert frame.data == {"topic": self.name, "head_seq": self.head}
                assert frame.cursors == {self.name: self.head, **later}
        return told

    def from_socket(self) -> list[Any]:
        told: list[Any] = []
        while (message := self.socket.read())["op"] != "caught_up":
            told.append((gap_of if message["op"] == "tombstone" else batch_of)(message))
            assert message.get("epoch") == (self.epoch if message["op"] == "record" else None)
        assert message["head_seq"] == self.head
        return told

    def compare_from(self, seq: int) -> None:
        """Three readers who have just arrived with the same cursor."""
        self.leave()
        for epoch in ({}, {"epoch": self.first_epoch}):
            expected = Diff(self, seq, knows_epoch=bool(epoch), **epoch).read()
            self.subscribe(seq, **epoch)
            assert self.from_socket() == expected
            self.socket.ask(op="unsubscribe", topic=self.name)
            stream = self.app.stream({self.name: {"from_seq": seq, **epoch}}, **self.options)
            assert self.from_stream(stream) == renamed(expected, True)
            stream.close()


def renamed(expected: list[Any], is_first: bool) -> list[Any]:
    """A gap met by the first read of an event stream goes by another name."""
    if is_first and expected and expected[0][0] == "gap" and expected[0][1] != "recreated":
        return [("gap", "from_seq_too_old", *expected[0][2:]), *expected[1:]]
    return expected


@given(config=CONFIGS, options=OPTIONS, history=HISTORIES, positions=st.lists(st.floats(0, 1.2), max_size=3))
@settings(max_examples=50, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_same_position_tells_the_same(
    shared_app: RunningApp, config: Any, options: Any, history: list[tuple[str, Any]], positions: list[float]
) -> None:
    story = Story(shared_app, config, options)
    for what, how in history:
        getattr(story, what)(how)
    for position in (0.0, *positions):
        story.compare_from(round(position * story.head))
    shared_app.hang_up()
