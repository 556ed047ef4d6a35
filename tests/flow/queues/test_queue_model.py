"""A queue against plain lists: cohorts, leases, tokens, dead letters, losses, kills, clocks that are set."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.flow.queues.lab import QueueLab, Told, in_short, jobs, unexpected
from tests.log.harness import records
from topics.flow.queues.dispatcher import Claim
from topics.flow.queues.leases import Holder
from topics.flow.queues.queue import Settlement, Verb
from topics.log.read.render import Shape

DAY_MS = 86_400_000
# How a clock may be set: by so little that it is waited for, or by more, in both directions.
STEPS_MS = st.sampled_from([-300, -20_000, -10 * DAY_MS, 700, 20_000, 10 * DAY_MS])
FRESH, LEASED, DELAYED, RETURNED, OVERDUE = "fresh", "leased", "delayed", "returned", "overdue"
NODES = st.sampled_from(["a", "b", "c"])
TAGS = st.sampled_from([None, "x", "y"])
# Which jobs a call names, and what guards each: nothing, its lease, or one that is over.
PICKS = st.lists(
    st.tuples(st.integers(0, 9), st.sampled_from(["none", "current", "old"])), min_size=1, max_size=5
)
# Not the node that holds the first of them.
STRANGE = st.sampled_from([False, False, False, True])
COHORTS = st.lists(
    st.tuples(NODES, st.integers(1, 5), st.sampled_from([100, 400]), st.sampled_from([None, "c1", "c2"])),
    min_size=1,
    max_size=3,
)
LIMITS = st.fixed_dictionaries(
    {
        "max_deliveries": st.sampled_from([1, 2, 3, 0]),
        "dead_letter": st.sampled_from(["dead", "dead", None]),
        "cap_records": st.sampled_from([0, 0, 0, 6]),
        "ttl_ms": st.sampled_from([0, 0, 0, 900]),
    }
)


@dataclass
class Job:
    """A job that is in the queue: where it is, and what is known of it."""

    ts: int
    tag: str | None
    place: str = FRESH
    deliveries: int = 0
    node: str = ""
    lease: int = 0
    # When the lease or the delay is over, on the clock that cannot be set; and as it was written down last:
    # in Unix time, and when.
    until: int = 0
    written: tuple[int, int] = (0, 0)
    # Leased or delayed, as far as is written down: time alone has ended it.
    lapsed: str | None = None
    connection: str | None = None

    def left_ms(self, over_ms: int) -> int:
        """Of a lease or a delay, when a process goes on with it whose predecessor's time ended then."""
        time_ms, written_ms = self.written
        return min(time_ms - over_ms, time_ms - written_ms)


@dataclass
class Letter:
    src_seq: int
    tag: str | None
    deliveries: int


@dataclass
class Desk:
    """All jobs of the queue by seq, ascending, and all dead letters."""

    jobs: dict[int, Job] = field(default_factory=dict)
    letters: list[Letter] = field(default_factory=list)
    moved: int = 0
    # Jobs that were lost, with the reason, and those of them that no worker has been told of.
    lost: dict[int, str] = field(default_factory=dict)
    untold: set[int] = field(default_factory=set)

    def lose(self, seq: int, reason: str) -> None:
        del self.jobs[seq]
        self.lost[seq] = reason
        self.untold.add(seq)

    def notice(self) -> Told | None:
        if not self.untold:
            return None
        reasons = {self.lost[seq] for seq in self.untold}
        reason = "mixed" if len(reasons) > 1 else min(reasons)
        return min(self.untold), max(self.untold), len(self.untold), reason

    def at(self, place: str) -> list[int]:
        return [seq for seq, job in self.jobs.items() if job.place == place]

    def settle(self, now: int, steady: int, ttl_ms: int) -> None:
        for seq, job in list(self.jobs.items()):
            if ttl_ms and now - job.ts > ttl_ms:
                self.lose(seq, "ttl")
            elif (job.place == LEASED and steady > job.until) or (
                job.place == DELAYED and steady >= job.until
            ):
                job.lapsed, job.place, job.connection = job.place, RETURNED, None

    def evict(self, cap: int) -> None:
        while cap and len(self.jobs) > cap:
            self.lose(min(self.jobs), "cap")

    def choose(self, wanted: int, limit: int) -> list[int]:
        """Who is handed out next; those delivered too often step aside on the way."""
        chosen: list[int] = []
        for seq in self.at(RETURNED):
            if len(chosen) == wanted:
                break
            if limit and self.jobs[seq].deliveries >= limit:
                self.jobs[seq].place = OVERDUE
            else:
                chosen.append(seq)
        return chosen + self.at(FRESH)[: wanted - len(chosen)]

    def move(self, room: int, limit: int) -> int:
        """Dead letters, as many as there is room for."""
        leaving = self.at(OVERDUE)[:room]
        for seq in leaving:
            self.letters.append(Letter(seq, self.jobs.pop(seq).tag, limit))
        self.moved += len(leaving)
        return len(leaving)

    def held(self, seq: int, node: str, lease: int | None) -> bool:
        job = self.jobs.get(seq)
        if job is None or job.place != LEASED or job.node != node:
            return False
        return lease is None or lease == job.lease


def dealt(chosen: list[int], cohort: list[Any]) -> list[list[int]]:
    """One to each in turn, until everybody has enough."""
    hands: list[list[int]] = [[] for _ in cohort]
    left = iter(chosen)
    while any(len(hand) < wanted for hand, (_, wanted, _, _) in zip(hands, cohort, strict=True)):
        for hand, (_, wanted, _, _) in zip(hands, cohort, strict=True):
            if len(hand) < wanted:
                seq = next(left, None)
                if seq is None:
                    return hands
                hand.append(seq)
    return hands


class QueueAgainstLists(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.mkdtemp()
        self.lab = QueueLab(self.directory)
        self.desk = Desk()
        self.tokens: list[int] = []
        self.last_ts = 0
        self.holders = {"c1": Holder(), "c2": Holder()}

    def teardown(self) -> None:
        self.lab.kill()
        shutil.rmtree(self.directory)

    def now(self) -> int:
        """What the server takes for the time of day."""
        return self.lab.engine.now()

    def steady(self) -> int:
        return self.lab.clock.steady_ms()

    def settled(self) -> Desk:
        self.desk.settle(self.now(), self.steady(), self.limits["ttl_ms"])
        return self.desk

    def until(self, job: Job, ms: int) -> None:
        """A lease or a delay that lasts so long from now on."""
        job.until, job.lapsed = self.steady() + ms, None
        job.written = self.now() + ms, self.now()

    def write_down(self) -> None:
        """All of them: by a snapshot, or by a process that goes on with them."""
        for job in self.desk.jobs.values():
            job.written, job.lapsed = (self.now() + job.until - self.steady(), self.now()), None

    @property
    def limit(self) -> int:
        """Deliveries after which a job moves; 0 for never."""
        number: int = self.limits["max_deliveries"]
        return number if self.limits["dead_letter"] else 0

    @property
    def is_ephemeral(self) -> bool:
        return self.fixed["durability"] == "ephemeral"

    def room(self) -> int:
        """Dead letters that would be taken now."""
        return self.letter_cap - len(self.desk.letters) if self.letter_cap else 1000

    # --- history ----------------------------------------------------------------------------------------

    @initialize(
        limits=LIMITS,
        durable=st.booleans(),
        durability=st.sampled_from(["disk", "fsync", "ephemeral"]),
        letter_cap=st.sampled_from([0, 0, 2]),
    )
    def begin(self, limits: dict[str, Any], durable: bool, durability: str, letter_cap: int) -> None:
        self.durable = durable
        self.fixed: dict[str, Any] = {"leases_durable": durable, "durability": durability}
        self.limits = limits
        self.letter_cap = letter_cap
        self.lab.put("q", **self.fixed, **limits)
        if letter_cap:
            self.lab.put("dead", type="log", cap_records=letter_cap, discard="reject")
        self.write(["x", "y", None, "x", None])

    @rule(tags=st.lists(TAGS, min_size=1, max_size=6))
    def write(self, tags: list[str | None]) -> None:
        desk = self.settled()
        op = self.lab.write("q", *[{"data": tag, "tag": tag} for tag in tags])
        self.last_ts = max(self.last_ts, self.now())
        for seq, tag in enumerate(tags, op.first_seq):
            desk.jobs[seq] = Job(self.last_ts, tag)
        desk.evict(self.limits["cap_records"])

    @rule(limits=LIMITS, durable=st.booleans())
    def configure(self, limits: dict[str, Any], durable: bool) -> None:
        desk = self.settled()
        before = self.lab.topic("q").config
        self.lab.queue().refresh()
        if durable and not self.durable:
            self.write_down()
        self.durable = self.fixed["leases_durable"] = durable
        self.lab.put("q", **self.fixed, **limits)
        if durable:
            self.call(lambda done: self.lab.queue().keep_leases(done, unexpected))
        self.limits = limits
        if self.lab.topic("q").config is not before:
            for seq in desk.at(OVERDUE):
                desk.jobs[seq].place = RETURNED
        self.settled().evict(limits["cap_records"])

    @rule(ms=st.sampled_from([1, 40, 400, 901]))
    def wait(self, ms: int) -> None:
        self.lab.clock.advance(ms)

    @rule(ms=STEPS_MS)
    def set_the_clock(self, ms: int) -> None:
        """No time passes, and no lease ends or lasts longer."""
        self.lab.clock.step(ms)

    @rule(late_ms=st.sampled_from([0, 1]))
    def wait_for_the_next_end(self, late_ms: int) -> None:
        """To the last moment of a lease or a delay, or just beyond it."""
        ends = [job.until for job in self.settled().jobs.values() if job.place in (LEASED, DELAYED)]
        if ends:
            self.lab.clock.advance(max(min(ends) - self.steady(), 0) + late_ms)

    @rule(tag=st.sampled_from(["x", "y"]))
    def delete(self, tag: str) -> None:
        desk = self.settled()
        self.lab.delete("q", match=tag)
        if self.is_ephemeral:
            # The journal knows no tags of such jobs: a kill would make losses of these deletions.
            self.lab.checkpoint()
            self.write_down()
        desk.jobs = {seq: job for seq, job in desk.jobs.items() if job.tag != tag}

    @rule()
    def read_the_letters(self) -> None:
        """Somebody empties the dead-letter topic."""
        if self.desk.letters:
            self.lab.delete("dead", before=1 << 40)
            self.desk.letters.clear()

    @rule()
    def begin_anew(self) -> None:
        self.lab.drop("q")
        self.lab.put("q", **self.fixed, **self.limits)
        for gone in (self.desk.jobs, self.desk.lost, self.desk.untold):
            gone.clear()
        self.desk.moved = self.last_ts = 0
        self.holders = {"c1": Holder(), "c2": Holder()}  # streams end with their queue

    # --- claiming ---------------------------------------------------------------------------------------

    def serve(self, cohort: list[Any]) -> list[Claim]:
        answered: list[Claim] = []
        claims = [
            Claim(
                node, wanted, lease_ms, answered.append, unexpected, connection and self.holders[connection]
            )
            for node, wanted, lease_ms, connection in cohort
        ]
        self.lab.queue().serve(claims)
        return claims

    @rule(node=NODES, wanted=st.integers(1, 6), connection=st.sampled_from([None, "c1", "c2"]))
    def claim_alone(self, node: str, wanted: int, connection: str | None) -> None:
        self.claim([(node, wanted, 100, connection)])

    @rule(cohort=COHORTS, is_heard=st.sampled_from([True, True, False]))
    def claim(self, cohort: list[Any], is_heard: bool = True) -> None:
        desk = self.settled()
        claims = self.serve(cohort)
        self.lab.engine.queue.sync_now()
        self.lab.engine.queue.sync_now()
        self.hear(claims, is_heard)
        hands = dealt(desk.choose(sum(wanted for _, wanted, _, _ in cohort), self.limit), cohort)
        for claim, hand, (node, _, lease_ms, connection) in zip(claims, hands, cohort, strict=True):
            given = jobs(claim)
            assert [job["$seq"] for job in given] == hand
            for told in given:
                job = desk.jobs[told["$seq"]]
                job.place, job.node, job.connection = LEASED, node, connection
                job.deliveries += 1
                self.until(job, lease_ms)
                job.lease = int(told["lease_id"].removeprefix("lease_"), 16)
                assert job.lease not in self.tokens
                self.tokens.append(job.lease)
                assert (told["deliveries"], told["deadline"]) == (job.deliveries, self.now() + lease_ms)
                assert (told["$ts"], told["data"], told.get("$tag")) == (job.ts, job.tag, job.tag)
        desk.move(self.room(), self.limit)

    def hear(self, claims: list[Claim], is_heard: bool) -> None:
        """The first of them is told of every loss that no worker has heard of, unless it has gone."""
        notices = [claim.notice and in_short(claim.notice) for claim in claims]
        expected = self.desk.notice()
        if self.is_ephemeral:
            # A restart takes all jobs, and the account of what had gone before it.
            notices, expected = [told and told[:3] for told in notices], expected and expected[:3]
        assert notices == [expected] + [None] * (len(claims) - 1)
        notice = claims[0].notice
        if notice is None:
            return
        if is_heard:
            self.lab.queue().told(notice)
            self.lab.engine.queue.flush()
            self.desk.untold.clear()
        else:
            self.lab.queue().losses.withdraw()

    # --- what holders do --------------------------------------------------------------------------------

    def named(self, picks: list[tuple[int, str]], strange: bool) -> tuple[str, list[tuple[int, int | None]]]:
        """A node, and seqs around those that are out, each once and with what guards it."""
        desk = self.desk
        near = [*desk.at(LEASED), *[*desk.lost][-2:]] or [1, *desk.jobs]
        guarded: dict[int, int | None] = {}
        for index, guard in picks:
            seq = near[index % len(near)]
            job = desk.jobs.get(seq)
            guarded[seq] = None
            if guard == "current" and job is not None:
                guarded[seq] = job.lease
            elif guard == "old" and self.tokens:
                guarded[seq] = self.tokens[index % len(self.tokens)]
        holder = desk.jobs.get(next(iter(guarded)), Job(0, None)).node
        return "c" if strange or not holder else holder, list(guarded.items())

    def split(self, node: str, guarded: list[tuple[int, int | None]]) -> tuple[list[int], ...]:
        """Seqs that it holds, that are passed over, and that are lost."""
        held = [seq for seq, token in guarded if self.desk.held(seq, node, token)]
        lost = [seq for seq, _ in guarded if seq in self.desk.lost]
        return held, [seq for seq, _ in guarded if seq not in {*held, *lost}], lost

    def call(self, start: Callable[[Callable[..., None]], None]) -> tuple[Any, ...]:
        answers: list[tuple[Any, ...]] = []
        start(lambda *answer: answers.append(answer))
        self.lab.engine.queue.sync_now()
        [answer] = answers
        return answer

    def settle(self, verb: Verb, node: str, guarded: list[tuple[int, int | None]], **how: Any) -> Settlement:
        settled: list[Settlement] = []
        self.lab.queue().settle(Settlement(verb, node, guarded, settled.append, unexpected, **how))
        self.lab.engine.queue.sync_now()
        (settlement,) = settled
        return settlement

    @rule(picks=PICKS, strange=STRANGE)
    def ack(self, picks: list[tuple[int, str]], strange: bool) -> None:
        desk = self.settled()
        node, guarded = self.named(picks, strange)
        held, skipped, lost = self.split(node, guarded)
        ack = self.settle(Verb.ACK, node, guarded)
        assert (ack.seqs, ack.skipped, ack.lost) == (held, skipped, lost)
        for seq in held:
            del desk.jobs[seq]

    @rule(picks=PICKS, strange=STRANGE, delay_ms=st.sampled_from([0, 150]))
    def nack(self, picks: list[tuple[int, str]], strange: bool, delay_ms: int) -> None:
        desk = self.settled()
        node, guarded = self.named(picks, strange)
        held, skipped, lost = self.split(node, guarded)
        nack = self.settle(Verb.NACK, node, guarded, delay_ms=delay_ms)
        assert (nack.seqs, nack.skipped, nack.lost) == (held, skipped, lost)
        for seq in held:
            job = desk.jobs[seq]
            job.place = DELAYED if delay_ms else RETURNED
            self.until(job, delay_ms)
            job.connection = None

    @rule(picks=PICKS, strange=STRANGE, lease_ms=st.sampled_from([100, 500]))
    def extend(self, picks: list[tuple[int, str]], strange: bool, lease_ms: int) -> None:
        desk = self.settled()
        node, guarded = self.named(picks, strange)
        held, skipped, lost = self.split(node, guarded)
        extend = self.settle(Verb.EXTEND, node, guarded, lease_ms=lease_ms)
        assert (extend.seqs, extend.skipped, extend.lost) == (held, skipped, lost)
        assert extend.deadline == self.now() + lease_ms
        for seq in held:
            self.until(desk.jobs[seq], lease_ms)

    @rule(connection=st.sampled_from(["c1", "c2"]))
    def hang_up(self, connection: str) -> None:
        desk = self.settled()
        self.lab.queue().refresh()
        self.lab.queue().release(self.holders[connection])
        self.lab.engine.queue.sync_now()
        for seq in desk.at(LEASED):
            if desk.jobs[seq].connection == connection:
                desk.jobs[seq].place = RETURNED

    # --- restarts ---------------------------------------------------------------------------------------

    @rule(
        clean=st.booleans(),
        sealed=st.sampled_from([None, "some", "all"]),
        down_ms=st.sampled_from([0, 0, 60, 1000]),
        step_ms=st.one_of(st.just(0), STEPS_MS),
    )
    def restart(self, clean: bool, sealed: str | None = None, down_ms: int = 0, step_ms: int = 0) -> None:
        """Leases hold where they are to be kept; else every job is as if it had never been handed out."""
        self.settled()
        if sealed is not None:
            self.lab.checkpoint(everything=sealed == "all")
            self.write_down()
        stopped = self.now()
        self.lab.close(clean=clean)
        clock = self.lab.clock
        clock.advance(down_ms)
        clock.step(step_ms)
        clock.reboot(clock.steady_ms() // 3 + 5)
        over = stopped if clean else clock.now_ms()
        self.lab.open()
        if self.is_ephemeral:
            for seq in [*self.desk.jobs]:
                self.desk.lose(seq, "cap")
        self.holders = {"c1": Holder(), "c2": Holder()}
        for job in self.desk.jobs.values():
            job.connection = None
            if not self.durable:
                job.place, job.deliveries = FRESH, 0
                continue
            # If the clock was set back, what had ended may go on, for as long as it was given for at most.
            job.place = job.lapsed or job.place
            if job.place == OVERDUE:
                job.place = RETURNED
            elif job.place in (LEASED, DELAYED):
                job.until = self.steady() + max(job.left_ms(over), -1)
        self.write_down()
        # What was too old for the process before stays gone, though the clock may be back by now.
        self.desk.settle(stopped, self.steady(), self.limits["ttl_ms"])

    @rule(cohort=COHORTS, written=st.booleans())
    def kill_during_a_claim(self, cohort: list[Any], written: bool) -> None:
        """Nobody was answered. A job that moved has moved; a lease that is written down holds."""
        desk = self.settled()
        claims = self.serve(cohort)
        chosen = desk.choose(sum(wanted for _, wanted, _, _ in cohort), self.limit)
        hands = dealt(chosen, cohort)
        if written:
            self.lab.engine.queue.flush()
            # Leases are written down when the letters are; this flush took only the letters.
            if not desk.move(self.room(), self.limit) and self.durable:
                self.note_leases(claims, hands, cohort)
        self.restart(clean=False)

    def note_leases(self, claims: list[Claim], hands: list[list[int]], cohort: list[Any]) -> None:
        for claim, hand, (node, _, lease_ms, _) in zip(claims, hands, cohort, strict=True):
            for seq, told in zip(hand, jobs(claim), strict=True):
                job = self.desk.jobs[seq]
                job.place, job.node = LEASED, node
                self.until(job, lease_ms)
                job.deliveries += 1
                job.lease = int(told["lease_id"].removeprefix("lease_"), 16)
                self.tokens.append(job.lease)

    @rule(picks=PICKS, strange=STRANGE, written=st.booleans())
    def kill_during_an_ack(self, picks: list[tuple[int, str]], strange: bool, written: bool) -> None:
        desk = self.settled()
        node, guarded = self.named(picks, strange)
        held, _, _ = self.split(node, guarded)
        self.lab.queue().settle(Settlement(Verb.ACK, node, guarded, lambda _: None, unexpected))
        if written:
            self.lab.engine.queue.flush()
            for seq in held:
                del desk.jobs[seq]
        self.restart(clean=False)

    @rule(
        wanted=st.integers(1, 5),
        done=st.sets(st.integers(0, 4), max_size=3),
        ending=st.sampled_from([None, None, "stop", "kill"]),
        sealed=st.sampled_from([None, "some"]),
        down_ms=st.sampled_from([0, 80]),
        step_ms=st.one_of(st.just(0), STEPS_MS),
    )
    def a_day_of_work(
        self, wanted: int, done: set[int], ending: str | None, sealed: str | None, down_ms: int, step_ms: int
    ) -> None:
        """Jobs come, some are finished, the server may go or the clock be set, and the next worker asks."""
        self.write(["x", None, "y"])
        self.claim_alone("a", wanted, None)
        if done:
            self.ack([(index, "current") for index in sorted(done)], False)
        self.wait(40)
        if ending is None:
            self.set_the_clock(step_ms)
        else:
            self.restart(ending == "stop", sealed, down_ms, step_ms)
        self.claim_alone("b", 1, None)
        self.wait(61)
        self.claim_alone("c", 2, None)

    # --- what has to be so ------------------------------------------------------------------------------

    @invariant()
    def every_job_is_where_it_should_be(self) -> None:
        if self.lab.engine.find("q") is None:
            return
        desk = self.settled()
        # The lab checks that ready, in flight and delayed make up the number of live jobs.
        leased, delayed = len(desk.at(LEASED)), len(desk.at(DELAYED))
        ready = len(desk.jobs) - leased - delayed
        assert self.lab.counters() == (ready, leased, desk.moved)
        assert self.lab.seqs("q") == sorted(desk.jobs)

    @invariant()
    def every_letter_is_there_once(self) -> None:
        known = self.lab.engine.find("dead") is not None
        found = records(self.lab.diff("dead", shape=Shape(tags=True))) if known else []
        assert [
            (
                letter["meta"]["$dead_letter_src_seq"],
                letter["meta"]["$dead_letter_deliveries"],
                letter["meta"]["$dead_letter_from"],
                letter["data"],
                letter.get("$tag"),
            )
            for letter in found
        ] == [
            (str(letter.src_seq), str(letter.deliveries), "q", letter.tag, letter.tag)
            for letter in self.desk.letters
        ]


TestQueueAgainstLists = QueueAgainstLists.TestCase
TestQueueAgainstLists.settings = settings(
    max_examples=100,
    stateful_step_count=40,
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
