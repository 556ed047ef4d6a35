"""The judge: opens the disk after a crash and holds what it finds against what had been promised."""

from __future__ import annotations

from tests.crash.effects import TopicModel
from tests.crash.installation import Installation
from tests.crash.keys import Answer, known_keys, remembered
from tests.crash.lives import check_lives, named_cursors
from tests.crash.losses import check_notice
from tests.crash.model import Gaps, Rows, covers, lost_records, observe
from tests.crash.world import World
from topics.flow.stages import identities
from topics.log.topic import Topic

# Readers that start right in front of a loss, out of all there could be.
SAMPLED_CURSORS = 3


class Found:
    """What readers get from every topic after a restart."""

    def __init__(self, world: World | Installation) -> None:
        engine = world.engine
        self.topics: dict[int, Topic] = {topic.id: topic for topic in engine.by_id.values()}
        self.rows: dict[int, Rows] = {}
        self.gaps: dict[int, Gaps] = {}
        self.keys: dict[int, dict[str, Answer]] = {}
        for topic in engine.by_id.values():
            self.rows[topic.id], self.gaps[topic.id] = observe(engine, topic)
            self.keys[topic.id] = known_keys(engine, topic)


def crash(world: World, *, power: bool) -> None:
    """End the process, and perhaps the machine; nothing is open on the disk afterwards."""
    world.volatile = world.model.presume_all()
    if power:
        world.disk.crash(world.rng)
    else:
        world.disk.kill()


def recover(world: World, *, power: bool, synced: int) -> None:
    """Open again and judge. `synced`: how far the old process knew its journal to be safe."""
    world.open()
    judge(world, Found(world), synced if power else None)


def judge(world: World, found: Found, synced: int | None) -> None:
    model = world.model
    shown = {
        topic.id: (topic.shown_head, topic.shown_floor, topic.shown_line) for topic in model.topics.values()
    }
    gone = model.settle(lambda: _difference(world, found), synced)
    for lost in (lost_records(gone), world.volatile):
        for topic_id, seqs in lost.items():
            if topic_id in model.topics:
                _check_announced(world, found, topic_id, seqs)
    for known in model.topics.values():
        _check_marks(known, found.topics[known.id], shown.get(known.id, known.shown), synced is None)
        known.expire(world.aged_to())
        _adopt(known, found.topics[known.id])
    _check_routers(world)
    _check_queues(world, is_kill=synced is None)
    check_lives(world)
    world.dropped = set(model.gone_names)
    model.events.clear()


def _difference(world: World, found: Found) -> str | None:
    """What the model as it stands does not explain, or None."""
    topics = world.model.topics
    if topics.keys() != found.topics.keys():
        return f"topics {sorted(found.topics)} instead of {sorted(topics)}"
    now = world.aged_to()
    for known in topics.values():
        topic = found.topics[known.id]
        if topic.config != known.config or topic.name != known.name:
            return f"{known.name}: config {topic.config} instead of {known.config}"
        if topic.head < known.head:
            return f"{known.name}: head {topic.head} instead of {known.head}"
        # Not expired for good yet: what is presumed here may be taken back, and age cannot be.
        expected = {r.seq: r.row for r in known.unexpired(now) if not r.is_volatile}
        if found.rows[known.id] != expected:
            return f"{known.name}: {_unlike(found.rows[known.id], expected)}"
        expected_keys = remembered(known, world.engine.now())
        if found.keys[known.id] != expected_keys:
            return f"{known.name}: keys {found.keys[known.id]} instead of {expected_keys}"
    cursors = named_cursors(world)
    if cursors != world.model.cursors:
        return f"cursors {cursors} instead of {world.model.cursors}"
    routers = {router.name: router.cursor for router in world.here.routers.table.by_id.values()}
    wanted = {router.name: router.cursor for router in world.model.routers.values()}
    if routers != wanted:
        return f"routers at {routers} instead of {wanted}"
    commits = _commits(world)
    return None if commits == world.model.commits else f"commits {commits} and not {world.model.commits}"


def _commits(world: World) -> dict[tuple[str, str, int], dict[str, int]]:
    """All that the server remembers; a simulated world makes fewer than it forgets."""
    state = identities.state_from_plain(world.here.stages.identities.dump())
    return {
        (owner, name, commit.batch): {written.topic: written.count for written in commit.ranges}
        for owner, applications in state
        for name, commits in applications
        for commit in commits
    }


def _unlike(rows: Rows, expected: Rows) -> str:
    missing = sorted(expected.keys() - rows.keys())
    invented = sorted(rows.keys() - expected.keys())
    changed = [seq for seq in rows.keys() & expected.keys() if rows[seq] != expected[seq]]
    return f"missing {missing}, not expected {invented}, changed {changed}"


def _check_announced(world: World, found: Found, topic_id: int, seqs: list[int]) -> None:
    topic = found.topics[topic_id]
    silent = [seq for seq in seqs if not covers(found.gaps[topic_id], seq)]
    assert not silent, f"{topic.name}: {silent} vanished in silence; announced {found.gaps[topic_id]}"
    for seq in seqs[:SAMPLED_CURSORS]:
        _, gaps = observe(world.engine, topic, seq - 1)
        assert covers(gaps, seq), f"{topic.name}: a reader at {seq - 1} is not told that {seq} is lost"


def _check_marks(known: TopicModel, topic: Topic, shown: tuple[int, int, int], is_kill: bool) -> None:
    head, floor, line = shown
    name = topic.name
    assert topic.head >= head, f"{name}: head {topic.head} after {head} was shown"
    if is_kill:
        assert topic.head <= max(known.head, head), f"{name}: head {topic.head}, above {known.head}"
    assert topic.loss_line >= known.loss_line, f"{name}: line {topic.loss_line} below {known.loss_line}"
    assert topic.floor >= known.floor, f"{name}: floor {topic.floor} below {known.floor}"
    if is_kill or known.config.durability == "fsync":
        assert topic.floor >= floor, f"{name}: floor {topic.floor} after {floor} was shown"
        assert topic.loss_line >= line, f"{name}: line {topic.loss_line} after {line} was shown"


def _adopt(known: TopicModel, topic: Topic) -> None:
    """What the restart settled is the truth from here on."""
    known.live = {record.seq: record for record in known.live.values() if not record.is_volatile}
    known.live_bytes = sum(len(record.data) for record in known.live.values())
    known.keys = {key: keyed for key, keyed in known.keys.items() if not keyed.is_volatile}
    known.head = known.shown_head = topic.head
    known.cap_hi, known.ttl_hi = topic.cap_hi, topic.ttl_hi
    known.lost_hi, known.trim_hi = topic.lost_hi, topic.trim_hi
    known.shown_floor, known.shown_line = topic.floor, topic.loss_line


def _check_routers(world: World) -> None:
    """Copies in a destination follow the order of the source, and none is there twice."""
    for router in world.model.routers.values():
        copies = [record.data for record in router.dest.live.values()]
        assert len(copies) == len(set(copies)), f"{router.dest.name}: a copy is there twice"
        where = {record.data: record.seq for record in router.source.live.values()}
        order = [where[data] for data in copies if data in where]
        assert order == sorted(order), f"{router.dest.name}: copies are out of order"


def _check_queues(world: World, *, is_kill: bool) -> None:
    """Every job that is live is in exactly one place: free, held, or held back. Losses are yet to be told."""
    for topic in world.engine.by_id.values():
        if topic.config.is_queue:
            queue = world.here.queues.of(topic)
            queue.refresh()
            places = queue.ready + len(queue.table.leases) + len(queue.table.delayed)
            assert places == topic.live_count, f"{topic.name}: {topic.live_count} jobs in {places} places"
            if not topic.config.leases_durable:
                assert queue.ready == topic.live_count, f"{topic.name}: a lease outlived the process"
            known = world.model.topics[topic.id]
            known.has_crashed = True
            known.has_lost_power |= not is_kill
            # What went with the unsynced end of the journal brings its jobs back; and some are there whose
            # writers had no answer.
            known.told -= known.live.keys()
            known.doubtful -= known.live.keys()
            known.acknowledged |= known.live.keys()
            check_notice(known, queue.notice(), world.aged_to())
            queue.losses.withdraw()


def check_running(world: World, name: str, from_seq: int = 0) -> None:
    """A reader in between: sees what the model sees, and notes what it was shown."""
    topic = world.engine.find(name)
    if topic is None:
        return
    known = world.model.topics[topic.id]
    rows, gaps = observe(world.engine, topic, from_seq)
    if not world.keeps_time:
        # The disk has refused what keeps the time, perhaps just now: what age took may come back.
        live = {record.seq: record.row for record in known.unexpired(world.engine.now())}
        assert rows.items() <= live.items(), f"{name}: {_unlike(rows, live)}"
        return
    known.expire(world.engine.now())
    expected = {record.seq: record.row for record in known.live.values() if record.seq > from_seq}
    if from_seq + 1 < known.loss_line:
        expected = {record.seq: record.row for record in known.live.values()}
        assert gaps, f"{name}: a reader at {from_seq} is not told of the loss below {known.loss_line}"
    assert rows == expected, f"{name}: {_unlike(rows, expected)}"
    assert topic.floor == known.floor, f"{name}: floor {topic.floor} instead of {known.floor}"
    assert topic.loss_line == known.loss_line, f"{name}: line {topic.loss_line}, not {known.loss_line}"
    known.shown_floor, known.shown_line = topic.floor, topic.loss_line


def judge_damaged(world: World, found: Found, *, may_bring_back: bool) -> None:
    """After rot, a misdirected write or an unreadable file: anything may be lost, and nothing in silence.

    `may_bring_back`: the damage may have hit the frame that said that something was to go.
    """
    model, now = world.model, world.aged_to()
    for known in model.topics.values():
        topic = found.topics.get(known.id)
        if topic is None:
            # With a header that is gone as well, nobody can say what the frame was about.
            assert not known.shown_head or may_bring_back, f"{known.name} is gone"
            continue
        rows, gaps = found.rows[known.id], found.gaps[known.id]
        invented = found.keys[known.id].items() - known.keys_ever
        assert not invented, f"{known.name}: {invented} is no answer that was ever given"
        for seq, row in rows.items():
            written = known.written.get(seq)
            assert written is not None, f"{known.name}: {seq} is invented"
            assert written.row == row, f"{known.name}: {seq} is not what was written"
        if not may_bring_back:
            back = rows.keys() - known.live.keys() - known.presumed - known.evicted
            assert not back, f"{known.name}: {sorted(back)} came back"
        silent = [
            record.seq
            for record in known.unexpired(now)
            if record.seq not in rows and record.seq not in known.presumed and not covers(gaps, record.seq)
        ]
        assert not silent, f"{known.name}: {silent} vanished in silence; announced {gaps}"
        assert topic.head >= known.shown_head, f"{known.name}: head {topic.head}, not {known.shown_head}"
