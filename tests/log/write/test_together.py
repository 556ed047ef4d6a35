"""Small writes to many topics at once: it ends as if each topic had been written by itself."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.log.harness import Lab, records
from tests.support.accelerated import WAYS, using
from topics.flow.convoys import Convoys, Travellers
from topics.log import run as run_module
from topics.log import topic as topic_module
from topics.log.lifecycle import put_topic
from topics.log.topic import Topic
from topics.log.write import together as together_module
from topics.log.write.append import AppendOp
from topics.log.write.append_request import parse_append
from topics.log.write.together import TogetherOp
from topics.values import MAX_IDEMPOTENCY_KEY_BYTES, MAX_SEQ
from topics.values.config import TopicConfig
from topics.values.errors import ApiError

PLAIN = b'{"records":[{"data":%d}]}'
# A clock that is only a little behind is waited for: one that is set back this far is not.
DAY_MS = 86_400_000
SETTINGS = {"segment_max_events": 40, "hot_bytes": 1 << 20}
# With and without the accelerator, in the next flush; and with it, what comes together is written in one go.
WORLDS = {name: (native, False) for name, native in WAYS.items()}
WORLDS |= {f"{name}, at once": (native, True) for name, native in WAYS.items() if native is not None}


class Answers:
    """Who was told what, in the order of the writers."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self.told: dict[str, object] = {}
        self.together = 0

    def let_in(self, travellers: Travellers[str], started: float) -> Travellers[str]:
        return travellers

    def answer(self, writers: list[str], counts: list[int] | None, started: float, op: AppendOp) -> None:
        seq = op.first_seq
        for writer, count in zip(writers, counts or [1] * len(writers), strict=True):
            self.told[writer] = seq, count, op.deduped
            seq += count

    def answer_together(self, op: TogetherOp[str]) -> None:
        self.together += len(op.shares)
        for _, writers, first_seq, count, *_ in op.shares:
            assert count == len(writers)
            self.told.update({writer: (first_seq + at, 1, False) for at, writer in enumerate(writers)})

    def fail(self, writers: list[str], started: float, error: ApiError) -> None:
        self.told.update(dict.fromkeys(writers, error.code))

    def note_held(self, held_s: float) -> None:
        return None

    def append_alone(self, writer: str, body: bytes, key: bytes | None, started: float) -> None:
        name = writer.partition("/")[0]
        try:
            request = parse_append(body, key)
            self._lab.engine.append(
                name,
                request,
                lambda op: self.answer([writer], [op.count], started, op),
                lambda error: self.fail([writer], started, error),
            )
        except ApiError as error:
            self.fail([writer], started, error)


class World:
    """A log, and how it is written."""

    def __init__(
        self, directory: Path, native: Any, *, at_once: bool = False, by_topic: bool = False
    ) -> None:
        self._native = native
        self.at_once = at_once
        with using(native):
            self.lab = Lab(directory, **SETTINGS)
            # Digests are the same in all worlds.
            self.lab.engine.keys._use_salt(bytes(16))
            self.answers = Answers(self.lab)
            doors: Any = SimpleNamespace(stand_open=True, let_pass=lambda name: False)
            self.convoys: Convoys[str] = Convoys(self.lab.engine, doors, self.answers)
        self.lab.engine.queue.is_free = lambda: at_once
        if by_topic:
            # Nothing goes together: each topic is written by itself, as it always could be.
            alone: Any = SimpleNamespace(append=lambda wanted, started: list(range(len(wanted))))
            self.convoys._together = alone

    def write(self, writes: list[tuple[str, str, bytes, bytes | None]]) -> None:
        if self.at_once:
            self.convoys.join_all(found_together(writes))
            return
        for name, writer, body, key in writes:
            if key is None:
                self.convoys.join(name, writer, body)
            else:
                self.convoys.join_keyed(name, writer, body, key)

    def do(self, step: tuple[Any, ...]) -> None:
        kind, *given = step
        engine = self.lab.engine
        with using(self._native):
            if kind == "write":
                for changed, config in given[1]:
                    # On its way before them, and in effect when they are shown.
                    put_topic(engine, changed, TopicConfig(**config), _ignore, _ignore)
                self.write(given[0])
                engine.queue.flush()
            elif kind == "sync":
                engine.queue.sync_now()
            elif kind == "clock":
                self.lab.clock.advance(given[0])
            elif kind == "set clock":
                self.lab.clock.step(given[0])
            elif kind == "config":
                self.lab.put(given[0], **given[1])
                # Reservations run out soon.
                self.lab.topic(given[0]).reserving = 2
            elif kind == "delete":
                self.lab.delete(given[0], given[1])

    def seen(self, *, with_positions: bool = True) -> dict[str, Any]:
        """`with_positions`: where the journal was when a run began, later behind what was written."""
        engine = self.lab.engine
        return {
            "topics": {topic.name: _state(topic, with_positions) for topic in engine.by_name.values()},
            "totals": (engine.totals.bytes, engine.totals.records, engine.totals.pending_bytes),
            "unsealed": engine.store.unsealed.bytes,
            "frames": engine.counters.frames,
            "told": self.answers.told,
            "touched": {topic.name for topic in engine.touched},
        }


def found_together(writes: list[tuple[str, str, bytes, bytes | None]]) -> list[Any]:
    """As they are found when many sockets are read at once."""
    found: dict[tuple[str, bool], tuple[list[str], list[bytes], list[bytes] | None]] = {}
    for name, writer, body, key in writes:
        sent = found.setdefault((name, key is None), ([], [], None if key is None else []))
        sent[0].append(writer)
        sent[1].append(body)
        if sent[2] is not None and key is not None:
            sent[2].append(key)
    return [(name, sent) for (name, _), sent in found.items()]


def _state(topic: Topic, with_positions: bool) -> dict[str, Any]:
    names = (
        "id head assigned floor floor_ts last_ts reserved reserve_asked live_count live_bytes pending_count"
    )
    names += " pending_bytes pending_sync last_write_ts mixed cap_hi ttl_hi"
    state = {name: getattr(topic, name) for name in names.split()}
    state["runs"] = [_run(run) for run in topic.runs]
    if with_positions:
        state["positions"] = [run.start_position for run in topic.runs]
    keys = topic.keys
    if keys is not None and not keys.is_idle:
        state["keys"] = [(bytes(chunk.digests), list(chunk.rows), chunk.gone) for chunk in keys.chunks]
        state["places"] = sorted(keys.by_place.keys()), keys.count
    return state


def _run(run: Any) -> tuple[Any, ...]:
    hot = run.hot
    columns = None
    if hot is not None:
        view = hot.view()
        columns = bytes(view.rows), view.ends.tolist(), view.ts.tolist(), hot.size, hot.weight
    numbers = run.base, run.count, run.live_count, run.live_bytes, run.first_ts, run.last_ts
    return *numbers, run.dead_count, columns


def _ignore(_: object) -> None:
    return None


def journal(lab: Lab) -> list[bytes]:
    """Its frames, in whatever order."""
    return sorted(frame.path.read_bytes()[frame.offset : frame.end] for frame in lab.frames())


def history(seed: int) -> list[tuple[Any, ...]]:
    chance = random.Random(seed)
    names, writers = [f"t{at}" for at in range(5)], iter(range(10**6))
    steps: list[tuple[Any, ...]] = [("config", name, _config(chance, plain=True)) for name in names[:3]]
    steps += [("config", "t3", {"cap_records": 5}), ("config", "t4", {"ttl_ms": 300})]
    for _ in range(70):
        what = chance.random()
        if what < 0.72:
            # Between writers with keys and writers without, nobody promises an order.
            keyed = chance.sample(names, chance.randrange(4))
            writes = []
            for _ in range(chance.choice([1, 3, 8, 20])):
                name = chance.choice([*names, "missing"])
                key = b"k%d" % chance.randrange(400) if name in keyed else None
                writes.append((name, f"{name}/{next(writers)}", _body(chance), key))
            changed = [(chance.choice(names), _config(chance))] if chance.random() < 0.1 else []
            steps.append(("write", writes, changed))
        elif what < 0.87:
            steps.append(("sync",))
        elif what < 0.92:
            steps.append(("clock", chance.choice([0, 1, 1, 5, 400])))
            steps.append(("set clock", chance.choice([0, 0, -3, -DAY_MS, DAY_MS])))
        elif what < 0.96:
            steps.append(("config", chance.choice(names), _config(chance)))
        else:
            steps.append(("delete", chance.choice(names), chance.randrange(1, 40)))
    return [*steps, ("sync",)]


def _body(chance: random.Random) -> bytes:
    if chance.random() < 0.93:
        return PLAIN % chance.randrange(10 ** chance.randrange(1, 9))
    return chance.choice(
        [
            b'{"records": [{"data": "a blank"}]}',
            b'{"records":[{"data":1},{"data":2}]}',
            b'{"records":[{"data":1,"tag":"a"}]}',
            b'{"records":[{"data":1,"node":"n","meta":{"a":1}}]}',
            '{"records":[{"data":"ä"}]}'.encode(),
            b'{"records":[{"data":}]}',
            b'{"records":[{"data":1,"dta":1}]}',
        ]
    )


def _config(chance: random.Random, *, plain: bool = False) -> dict[str, Any]:
    durability = chance.choice(["disk", "disk", "fsync"])
    if plain or chance.random() < 0.5:
        return {"durability": durability}
    limit = chance.choice(
        [{"ttl_ms": 300}, {"cap_records": 30}, {"cap_bytes": 200}, {"idempotency_window_ms": 0}]
    )
    return {"durability": chance.choice([durability, "ephemeral"])} | limit


@pytest.mark.parametrize(("native", "at_once"), WORLDS.values(), ids=list(WORLDS))
@pytest.mark.parametrize("seed", range(5))
def test_it_ends_as_if_each_topic_had_been_written_by_itself(
    tmp_path: Path, seed: int, native: Any, at_once: bool
) -> None:
    alone = World(tmp_path / "alone", native, by_topic=True)
    together = World(tmp_path / "together", native, at_once=at_once)
    for step in history(seed):
        alone.do(step)
        together.do(step)
        seen = [world.seen(with_positions=not at_once) for world in (together, alone)]
        assert seen[0] == seen[1], step
    # The same frames, though those of one turn may stand in another order.
    assert journal(together.lab) == journal(alone.lab)
    assert together.answers.together > 20
    alone.lab.restart()
    together.lab.restart()
    assert together.lab.states() == alone.lab.states()
    for world in (alone, together):
        world.lab.kill()


@pytest.mark.parametrize(("native", "at_once"), WORLDS.values(), ids=list(WORLDS))
@pytest.mark.parametrize("seed", range(6))
def test_writers_with_and_without_keys_share_a_topic_and_a_turn(
    tmp_path: Path, seed: int, native: Any, at_once: bool
) -> None:
    """Retries among them, also of a write of the same turn. Nobody promises an order; each has its seq."""
    chance, world = random.Random(seed), World(tmp_path / "data", native, at_once=at_once)
    names = ("a", "b", "c")
    kept: dict[tuple[str, int], int] = {}
    known: dict[tuple[str, bytes | None], int] = {}
    for name, durability in zip(names, ("disk", "fsync", "disk"), strict=True):
        world.do(("config", name, {"durability": durability}))
    for turn in range(60):
        writes, heads = [], {name: world.lab.topic(name).assigned for name in names}
        for at in range(chance.choice([1, 2, 6, 15])):
            name, value = chance.choice(names), turn * 100 + at
            body = PLAIN % value if chance.random() < 0.95 else b'{"records":[{"data":%d,"tag":"t"}]}' % value
            key = chance.choice([None, b"k%d" % chance.randrange(25)])
            writes.append((name, f"{name}/{value}", body, key))
        world.do(("write", writes, []))
        world.do(("sync",))
        told = {writer: world.answers.told.pop(writer) for _, writer, *_ in writes}
        for name, writer, _, key in writes:
            seq, _, is_retry = told[writer]  # type: ignore[misc]
            if not is_retry:
                assert (name, key) not in known, f"{writer}: a retry was written again"
                assert (name, seq) not in kept, f"{writer}: {seq} is given out twice"
                kept[name, seq], heads[name] = int(writer[2:]), heads[name] + 1
                if key is not None:
                    known[name, key] = seq
        for name, writer, _, key in writes:
            assert key is None or told[writer][0] == known[name, key], writer  # type: ignore[index]
        assert heads == {name: world.lab.topic(name).head for name in names}
    assert world.answers.together > 20
    world.lab.restart()
    found = {
        (name, record["$seq"]): record["data"] for name in names for record in records(world.lab.diff(name))
    }
    assert found == kept
    world.lab.kill()


@pytest.fixture(params=WORLDS.values(), ids=list(WORLDS))
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    native, at_once = request.param
    world = World(tmp_path / "data", native, at_once=at_once)
    for name in ("a", "b"):
        world.do(("config", name, {}))
        world.do(("write", [(name, f"{name}/first", PLAIN % 0, None)], []))
    world.do(("sync",))
    yield world
    world.lab.kill()


def both(world: World, *, key: bytes | None = None) -> None:
    world.do(("write", [(name, f"{name}/next", PLAIN % 1, key) for name in ("a", "b")], []))


def test_a_turn_is_one_operation(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    queue = world.lab.engine.queue
    take = queue._take

    def counted() -> list[Any]:
        ops = take()
        taken.append(len(ops))
        return ops

    monkeypatch.setattr(queue, "_take", counted)
    both(world)
    # What is written in one go never waits.
    assert taken == [0 if world.at_once else 1]
    assert world.answers.told["a/next"] == world.answers.told["b/next"] == (2, 1, False)


@pytest.mark.parametrize("key", [None, b"k"])
def test_what_the_disk_refuses_is_taken_back_everywhere(world: World, key: bytes | None) -> None:
    lab, before = world.lab, world.seen()
    refuse = OSError(28, "no space left on device")

    def full(*_: object) -> None:
        raise refuse

    file = lab.engine.journal._file
    lab.engine.journal._file = SimpleNamespace(  # type: ignore[assignment]
        write=full, truncate=lambda _: None, sync=lambda: None, fileno=file.fileno, path=file.path
    )
    both(world, key=key)
    lab.engine.journal._file = file
    assert world.answers.told["a/next"] == world.answers.told["b/next"] == "disk_full"
    lab.engine.queue.resume()
    after = world.seen()
    for seen in (before, after):
        del seen["told"], seen["frames"]
    assert {k: v for k, v in after["topics"]["a"].items() if k not in ("keys", "places")} == {
        k: v for k, v in before["topics"]["a"].items() if k not in ("keys", "places")
    }
    assert after["totals"] == before["totals"]
    both(world, key=key)
    assert world.answers.told["a/next"] == world.answers.told["b/next"] == (2, 1, False)


def test_a_reader_that_waits_is_woken_behind_the_answer(world: World) -> None:
    topic = world.lab.topic("a")
    seen: list[object] = []
    topic.listeners.append(lambda: seen.append((topic.head, world.answers.told.get("a/next"))))
    both(world)
    assert seen == [(2, (2, 1, False))]


def test_times_do_not_fall_where_the_clock_is_set_back(world: World) -> None:
    lab, together = world.lab, world.answers.together
    first_ms = lab.clock.now_ms()
    lab.clock.step(-DAY_MS)
    both(world)
    both(world)
    assert world.answers.together == together + 4
    assert lab.topic("a").last_ts == first_ms
    for name in ("a", "b"):
        assert [record["$ts"] for record in records(lab.diff(name))] == [first_ms] * 3
    lab.clock.step(DAY_MS + 1)
    both(world)
    lab.restart()
    assert [record["$ts"] for record in records(lab.diff("a"))] == [first_ms] * 3 + [first_ms + 1]


def test_a_retry_is_not_written_again(world: World) -> None:
    both(world, key=b"k")
    world.answers.told.clear()
    both(world, key=b"k")
    assert world.answers.told == {"a/next": (2, 1, True), "b/next": (2, 1, True)}
    assert world.lab.topic("a").head == 2


def test_a_seq_that_is_not_reserved_waits_for_the_disk(world: World) -> None:
    for name in ("a", "b"):
        topic = world.lab.topic(name)
        topic.reserved = topic.reserve_asked = topic.assigned
    both(world)
    assert "a/next" not in world.answers.told
    world.do(("sync",))
    assert world.answers.told["a/next"] == world.answers.told["b/next"] == (2, 1, False)


def test_the_last_seq_that_is_reserved_is_given_out_without_waiting(world: World) -> None:
    for name in ("a", "b"):
        topic = world.lab.topic(name)
        topic.reserved = topic.assigned + 1
    together = world.answers.together
    both(world)
    assert world.answers.told["a/next"] == world.answers.told["b/next"] == (2, 1, False)
    assert world.answers.together == together + 2


@pytest.mark.parametrize("limit", ["max_events", "max_bytes"])
def test_a_run_that_they_fill_is_complete(world: World, limit: str) -> None:
    unsealed, run = world.lab.engine.store.unsealed, world.lab.topic("a").runs[-1]
    assert run.hot is not None
    most = {"max_events": 2, "max_bytes": 2 * run.hot.size}[limit]
    setattr(unsealed, limit, most)
    together = world.answers.together
    world.do(("write", [("a", "a/next", PLAIN % 1, None)], []))
    assert world.answers.together == together + 1
    assert (run.count, unsealed.is_full(run)) == (2, True)


def test_the_last_seq_that_there_is_is_given_out_and_none_behind_it(world: World) -> None:
    world.lab.engine.settings.seq_base = MAX_SEQ - 1
    world.do(("config", "c", {}))
    world.lab.topic("c").reserve(MAX_SEQ + 256)
    together = world.answers.together
    for number in range(3):
        world.do(("write", [("c", f"c/{number}", PLAIN % 1, None)], []))
    told = [world.answers.told[f"c/{number}"] for number in range(3)]
    assert told[:2] == [(MAX_SEQ - 1, 1, False), (MAX_SEQ, 1, False)]
    assert told[2] == "internal"
    assert world.lab.topic("c").head == MAX_SEQ
    assert world.answers.together == together + 1, "the first has no run to go to"


def test_where_all_topics_share_a_bound_each_is_looked_at(world: World) -> None:
    world.lab.engine.settings.max_total_bytes = 1 << 40
    together = world.answers.together
    both(world)
    assert world.answers.told["a/next"] == world.answers.told["b/next"] == (2, 1, False)
    assert world.answers.together == together


@pytest.mark.parametrize(("room", "shares"), [(6, 2), (5, 0)])
def test_there_has_to_be_room_for_them_and_for_reservations(
    world: World, monkeypatch: pytest.MonkeyPatch, room: int, shares: int
) -> None:
    monkeypatch.setattr(together_module, "MAX_WAITING_OPS", room)
    together = world.answers.together
    both(world)
    assert world.answers.told["a/next"] == world.answers.told["b/next"] == (2, 1, False)
    # What is written in one go does not wait, and needs no room for that.
    assert world.answers.together == together + (2 if world.at_once else shares)


@pytest.mark.parametrize(("longer", "shares"), [(0, 1), (1, 0)])
def test_a_key_may_be_as_long_as_keys_may_be(world: World, longer: int, shares: int) -> None:
    together, key = world.answers.together, b"k" * (MAX_IDEMPOTENCY_KEY_BYTES + longer)
    writes = [("a", "a/short", PLAIN % 1, b"short"), ("a", "a/long", PLAIN % 2, key)]
    world.do(("write", writes, []))
    assert world.answers.together == together + shares
    assert world.answers.told["a/short"] == (2, 1, False)
    assert world.answers.told["a/long"] == ("invalid_request" if longer else (3, 1, False))


@pytest.mark.parametrize("durability", ["disk", "fsync"])
@pytest.mark.parametrize("bound", ["most_a_topic", "most"])
def test_as_many_keys_are_remembered_as_may_be(world: World, bound: str, durability: str) -> None:
    keys, told = world.lab.engine.keys, []
    world.do(("config", "a", {"durability": durability}))
    setattr(keys, bound, 12)
    world.lab.topic("a").reserving, together = 2, world.answers.together
    for turn in range(10):
        writes = [("a", f"a/{turn}-{at}", PLAIN % at, b"%d-%d" % (turn, at)) for at in range(4)]
        world.do(("write", writes, []))
        world.do(("sync",))
        told.append(keys.count)
    assert world.answers.together > together + 4
    assert max(told) <= 12
    assert told[-1] > 4
    topic_keys = world.lab.topic("a").keys
    assert topic_keys is not None
    assert topic_keys.count == keys.count == len(topic_keys.by_place.keys())


@pytest.mark.parametrize("key", [None, b"k"])
def test_the_time_of_records_never_falls(world: World, key: bytes | None) -> None:
    topic, now = world.lab.topic("a"), world.lab.engine.now()
    topic.last_ts = now + 5000
    together = world.answers.together
    both(world, key=key)
    assert world.answers.together == together + 2
    for _ in range(2):
        times = [[record["$ts"] for record in records(world.lab.diff(name))] for name in ("a", "b")]
        assert times == [[now, now + 5000], [now, now]]
        world.do(("sync",))
        world.lab.restart()


def test_topics_that_were_written_to_are_noted(world: World) -> None:
    """What a start has to find of each is journalled from time to time."""
    world.lab.engine.touched.clear()
    both(world)
    assert {topic.name for topic in world.lab.engine.touched} == {"a", "b"}


@pytest.mark.parametrize("fails", [False, True])
def test_a_retry_that_waits_for_the_first_is_answered_with_it(world: World, fails: bool) -> None:
    world.do(("config", "a", {"durability": "fsync"}))
    for writer in ("a/first", "a/retry"):
        world.answers.told.pop(writer, None)
        world.do(("write", [("a", writer, PLAIN % 1, b"k")], []))
    assert "a/first" not in world.answers.told
    assert "a/retry" not in world.answers.told
    if fails:
        world.lab.engine.queue.give_up(OSError(5, "no"))
    world.do(("sync",))
    if fails:
        assert world.answers.told["a/first"] == world.answers.told["a/retry"] == "internal"
    else:
        assert world.answers.told["a/first"] == (2, 1, False)
        assert world.answers.told["a/retry"] == (2, 1, True)


def test_a_cap_that_was_on_its_way_holds_for_them(world: World) -> None:
    world.do(("config", "a", {"durability": "fsync"}))
    put_topic(
        world.lab.engine, "a", TopicConfig(durability="fsync", durable=True, cap_records=2), _ignore, _ignore
    )
    world.lab.engine.queue.flush()
    topic = world.lab.topic("a")
    topic.reserving, together = 256, world.answers.together
    world.do(("write", [("a", f"a/{at}", PLAIN % at, None) for at in range(5)], []))
    world.do(("sync",))
    assert world.answers.together == together + 1
    assert (topic.head, topic.live_count, topic.cap_hi) == (6, 2, 4)


def test_writers_of_others_do_not_wait_for_a_change_of_one(world: World) -> None:
    change = [("a", {"cap_records": 2})]
    world.do(("write", [(name, f"{name}/next", PLAIN % 1, None) for name in ("a", "b")], change))
    assert "b/next" in world.answers.told
    assert "a/next" not in world.answers.told
    world.do(("sync",))
    assert "a/next" in world.answers.told


@pytest.mark.parametrize("odd", ["", "a", "b", "c"])
def test_each_of_several_topics_gets_what_was_sent_to_it(world: World, odd: str) -> None:
    """Even if one of them has got what is not plain."""
    bodies = {f"{name}/{at}": PLAIN % (ord(name) * 10 + at) for name in "ab" for at in range(3)}
    if odd:
        bodies[f"{odd}/odd"] = b'{"records":[{"data":7,"tag":"t"}]}'
    world.do(("write", [(writer[0], writer, body, None) for writer, body in bodies.items()], []))
    world.do(("sync",))
    for name in "ab":
        kept = [record["data"] for record in records(world.lab.diff(name))]
        sent = [ord(name) * 10 + at for at in range(3)]
        assert [data for data in kept if data >= 10] == sent
        told = [world.answers.told[f"{name}/{at}"] for at in range(3)]
        assert [kept[seq - 1] for seq, _, _ in told] == sent


@pytest.mark.parametrize("body", [PLAIN % 1, b'{"records":[{"data":1,"tag":"a"}]}'])
def test_what_is_left_takes_nothing_from_others_of_its_topic(world: World, body: bytes) -> None:
    """Those without a key are written together; the one with a key, a retry or odd, is left."""
    both(world, key=b"k")
    key = b"k" if body == PLAIN % 1 else b"another"
    world.do(("write", [("a", "a/plain", PLAIN % 7, None), ("a", "a/left", body, key)], []))
    world.do(("sync",))
    assert world.answers.told["a/plain"] == (3, 1, False)
    assert world.answers.told["a/left"] == ((2, 1, True) if key == b"k" else (4, 1, False))
    topic = world.lab.topic("a")
    assert topic.head == topic.assigned == topic.live_count == (3 if key == b"k" else 4)


@pytest.mark.parametrize("key", [None, b"k"])
@pytest.mark.parametrize("what", ["plain_frame", "rows_and_ends", "split_plain"])
def test_without_memory_a_topic_is_as_it_was_and_its_writers_come_by_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, key: bytes | None
) -> None:
    world = World(tmp_path / "data", None)
    module = topic_module if what == "rows_and_ends" else together_module
    make, times = getattr(module, what), [0]

    def fail_at_first(*given: Any) -> Any:
        times[0] += 1
        if times[0] == 1:
            raise MemoryError
        return make(*given)

    for name in ("a", "b"):
        world.do(("config", name, {}))
        world.do(("write", [(name, f"{name}/first", PLAIN % 0, None)], []))
    monkeypatch.setattr(module, what, fail_at_first)
    together = world.answers.together
    both(world, key=key)
    assert world.answers.told["a/next"] == world.answers.told["b/next"] == (2, 1, False)
    # Where all could not be taken apart at once, each can.
    assert world.answers.together == together + (2 if what == "split_plain" else 1)
    both(world, key=key)
    seqs = [[record["$seq"] for record in records(world.lab.diff(name))] for name in ("a", "b")]
    assert seqs == [[1, 2] if key else [1, 2, 3]] * 2
    world.lab.kill()


@pytest.mark.parametrize("native", WAYS.values(), ids=list(WAYS))
def test_without_memory_to_take_one_apart_the_others_have_their_seqs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, native: Any
) -> None:
    world = World(tmp_path / "data", native)
    for name in ("a", "b"):
        world.do(("config", name, {}))
        world.do(("write", [(name, f"{name}/first", PLAIN % 0, None)], []))
    split = together_module.split_plain

    def short_for_b(bodies: list[bytes]) -> Any:
        if any(b"tag" in body for body in bodies):
            raise MemoryError
        return split(bodies)

    monkeypatch.setattr(together_module, "split_plain", short_for_b)
    odd = b'{"records":[{"data":1,"tag":"t"}]}'
    for turn in range(2):
        writes = [("a", f"a/{turn}", PLAIN % 1, None), ("b", f"b/{turn}", odd, None)]
        world.do(("write", writes, []))
        told = world.answers.told
        assert told[f"a/{turn}"] == told[f"b/{turn}"] == (2 + turn, 1, False)
    world.do(("sync",))
    world.lab.restart()
    for name in ("a", "b"):
        assert [record["$seq"] for record in records(world.lab.diff(name))] == [1, 2, 3]
    world.lab.kill()


def test_without_memory_to_complete_a_run_no_seq_is_given_out_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path / "data", None)
    world.do(("config", "a", {}))

    class Short:
        def __init__(self, _: object) -> None:
            raise MemoryError

    monkeypatch.setattr(run_module, "PackedEnds", Short)
    most = world.lab.engine.store.unsealed.max_events
    for number in range(2 * most + 1):
        world.do(("write", [("a", f"a/{number}", PLAIN % number, None)], []))
    assert [record["$seq"] for record in records(world.lab.diff("a", 0, 2 * most + 5))] == [
        *range(1, 2 * most + 2)
    ]
    world.lab.kill()
