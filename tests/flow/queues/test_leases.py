"""The lease table on its own: a clock that is a number, and jobs that are numbers."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from topics.flow.queues.leases import STALE_TIMES, Holder, LeaseTable


def table_with(*seqs: int, deadline: int = 100, node: str = "w") -> LeaseTable:
    table = LeaseTable(1)
    for seq in seqs:
        table.grant([seq], 1000 + seq, node, deadline)
    return table


def test_a_lease_holds_up_to_its_deadline_and_not_a_millisecond_longer() -> None:
    table = table_with(1)
    table.expire(100)
    assert table.held(1, "w", None)
    table.expire(101)
    assert table.held(1, "w", None) is None
    assert table.take_returned() == 1


def test_only_the_holder_with_the_current_token_holds() -> None:
    table = table_with(1)
    assert table.held(1, "other", None) is None
    assert table.held(1, "w", 999) is None
    assert table.held(2, "w", None) is None
    assert table.held(1, "w", 1001)


def test_the_last_delay_counts() -> None:
    table = table_with(1)
    table.hold_back(1, 50)
    table.grant([1], 2000, "w", 100)
    table.hold_back(1, 80)
    table.expire(79)
    assert table.take_returned() is None
    table.expire(80)
    assert table.take_returned() == 1


def test_returned_jobs_come_back_lowest_first() -> None:
    table = table_with(5, 3, 9)
    for seq in (9, 3, 5):
        table.give_back(seq)
    assert [table.take_returned() for _ in range(4)] == [3, 5, 9, None]


def test_a_delay_holds_a_job_back_until_it_is_over() -> None:
    table = table_with(1)
    table.hold_back(1, 50)
    table.expire(49)
    assert table.take_returned() is None
    table.expire(50)
    assert table.take_returned() == 1
    assert not table.delayed


def test_an_extension_sets_the_deadline_and_keeps_count_and_id() -> None:
    table = table_with(1)
    lease = table.leases[1]
    table.extend(lease, 30)
    table.expire(31)
    assert 1 not in table.leases
    (lease,) = table.grant([1], 7, "w", 100)
    table.extend(lease, 500)
    table.expire(101)
    assert table.held(1, "w", 7)
    assert table.deliveries[1] == 2


def test_an_acknowledgement_on_its_way_outlives_the_deadline() -> None:
    table = table_with(1)
    lease = table.leases[1]
    lease.closing = True
    table.expire(1000)
    assert table.take_returned() is None
    assert table.held(1, "w", None) is None
    table.reopen(lease)
    assert table.take_returned() == 1


def test_leases_know_their_connection_and_forget_it() -> None:
    table, holder = LeaseTable(1), Holder()
    for seq in (1, 2, 3, 4):
        table.grant([seq], seq, "w", 10 * seq, holder)
    table.finish([1])
    table.hold_back(2, 99)
    table.expire(31)
    assert holder.seqs == {4}
    table.forget({4})
    assert not holder.seqs


def test_jobs_that_are_gone_are_gone_everywhere() -> None:
    table = table_with(1, 2, 3, 4, 5)
    table.give_back(1)
    table.hold_back(2, 50)
    table.set_overdue(5)
    table.forget({1, 2, 3, 5})
    assert table.known() == {4}
    table.expire(1000)
    assert table.take_returned() == 4


def test_times_of_leases_and_delays_that_ended_do_not_pile_up() -> None:
    table = LeaseTable(1)
    for seq in range(4 * STALE_TIMES):
        table.grant([seq], seq, "w", 10**12)
        table.finish([seq])
        table.grant([seq], seq, "w", 10**12)
        table.hold_back(seq, 10**12)
        table.forget({seq})
    assert len(table._deadlines) <= 2 * STALE_TIMES
    assert len(table._delays) <= 2 * STALE_TIMES


def test_overdue_jobs_leave_in_order_and_come_back_when_refused() -> None:
    table = LeaseTable(1)
    for seq in (4, 2, 3):
        table.set_overdue(seq)
    assert table.take_overdue(2) == [2, 3]
    table.put_back_overdue([2])
    assert table.known() == {2, 3, 4}
    table.reconsider_overdue()
    assert [table.take_returned(), table.take_returned()] == [2, 4]


def test_entries_bring_everything_back_however_often_they_are_read() -> None:
    table = table_with(1, 2, 3)
    table.give_back(2)
    table.hold_back(3, 70)
    entries = [table.entry(seq, 5000) for seq in sorted(table.known())]
    again = LeaseTable(1)
    for _ in range(2):
        again.restore(entries, 5000)
    assert [again.entry(seq, 0) for seq in (1, 2, 3)] == entries
    again.resume(5000, 0)
    again.recount([1, 2, 3])
    assert [again.entry(seq, 5000) for seq in (1, 2, 3)] == entries
    assert again.next_fresh == 4
    assert again.held(1, "w", 1001)
    assert again.take_returned() == 2
    again.expire(101)
    assert [again.take_returned(), again.take_returned()] == [1, 3]


SEQS = st.integers(1, 12)
NODES = st.sampled_from(["a", "b"])


class Desk(RuleBasedStateMachine):
    """The same history told to the table and to plain dictionaries that are swept on every look."""

    def __init__(self) -> None:
        super().__init__()
        self.table = LeaseTable(1)
        self.now = 0
        self.ids = 0
        self.fresh = 1
        self.leased: dict[int, tuple[str, int, int]] = {}
        self.free_at: dict[int, int] = {}
        self.count: dict[int, int] = {}

    def _sweep(self) -> None:
        for seq, (_, _, deadline) in list(self.leased.items()):
            if self.now > deadline:
                del self.leased[seq]
                self.free_at[seq] = 0
        self.table.expire(self.now)

    def _ready(self) -> list[int]:
        return sorted(seq for seq, at in self.free_at.items() if at <= self.now)

    @rule(ms=st.integers(0, 40))
    def wait(self, ms: int) -> None:
        self.now += ms

    @rule(node=NODES, lease_ms=st.integers(0, 30))
    def claim(self, node: str, lease_ms: int) -> None:
        self._sweep()
        expected = self._ready()
        seq = self.table.take_returned()
        assert seq == (expected[0] if expected else None)
        if seq is None:
            seq = self.fresh
            self.fresh += 1
        self.ids += 1
        self.free_at.pop(seq, None)
        # Never under two unexpired leases.
        assert seq not in self.leased
        self.leased[seq] = (node, self.ids, self.now + lease_ms)
        self.count[seq] = self.count.get(seq, 0) + 1
        self.table.grant([seq], self.ids, node, self.now + lease_ms)
        assert self.table.deliveries[seq] == self.count[seq]

    def _held(self, seq: int, node: str) -> Any:
        self._sweep()
        lease = self.table.held(seq, node, None)
        known = self.leased.get(seq)
        assert (lease is not None) == (known is not None and known[0] == node)
        if lease is not None and known is not None:
            assert (lease.id, lease.deadline) == (known[1], known[2])
        return lease

    @rule(seq=SEQS, node=NODES)
    def ack(self, seq: int, node: str) -> None:
        if self._held(seq, node) is not None:
            self.table.finish([seq])
            del self.leased[seq], self.count[seq]

    @rule(seq=SEQS, node=NODES, delay_ms=st.integers(0, 30))
    def nack(self, seq: int, node: str, delay_ms: int) -> None:
        if self._held(seq, node) is not None:
            if delay_ms:
                self.table.hold_back(seq, self.now + delay_ms)
            else:
                self.table.give_back(seq)
            del self.leased[seq]
            self.free_at[seq] = self.now + delay_ms

    @rule(seq=SEQS, node=NODES, lease_ms=st.integers(0, 60))
    def extend(self, seq: int, node: str, lease_ms: int) -> None:
        lease = self._held(seq, node)
        if lease is not None:
            self.table.extend(lease, self.now + lease_ms)
            self.leased[seq] = (node, lease.id, self.now + lease_ms)

    @precondition(lambda self: self.count)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        gone = data.draw(st.sets(st.sampled_from(sorted(self.count)), min_size=1))
        self.table.forget(gone)
        for seq in gone:
            self.leased.pop(seq, None)
            self.free_at.pop(seq, None)
            del self.count[seq]

    @rule()
    def restart(self) -> None:
        entries = [self.table.entry(seq, 1000) for seq in sorted(self.table.known())]
        self.table = LeaseTable(1)
        self.table.restore(entries, 1000)
        self.table.resume(1000 + self.now, self.now)
        self.table.recount(sorted(self.count))
        self.table.next_fresh = self.fresh

    @invariant()
    def everything_is_in_one_place(self) -> None:
        self._sweep()
        table = self.table
        assert table.known() == set(self.count)
        assert set(table.leases) == set(self.leased)
        assert set(table.delayed) == {seq for seq, at in self.free_at.items() if at > self.now}
        assert table.deliveries == self.count


Desk.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None, derandomize=True)
TestDesk = Desk.TestCase
