"""Loss at the source: it becomes a hole where the copy would have been."""

from __future__ import annotations

from tests.flow.routers.lab import RouterLab, seqs_and_data
from topics.flow.routers.source_window import read_window
from topics.log.remove import ledger


def test_a_hole_waits_for_the_room_its_record_had_wanted(lab: RouterLab) -> None:
    lab.put("a", cap_records=1)
    lab.put("b", discard="reject", cap_bytes=20)
    lab.route("r", "a", "b")
    lab.write("a", "x" * 10)
    lab.records("b")
    lab.write("a", "y" * 10)
    assert lab.data("b") == ["x" * 10]
    lab.write("a", "z" * 10)
    lab.records("b")
    assert lab.topic("b").head == 1
    lab.delete("b", before=2)
    assert seqs_and_data(lab, "b") == [(3, "z" * 10)]


def test_deletes_among_the_lost_leave_no_hole(lab: RouterLab) -> None:
    lab.put("a", ttl_ms=1000)
    lab.put("b", discard="reject", cap_records=1)
    lab.route("r", "a", "b")
    lab.write("a", "first")
    lab.records("b")
    lab.write("a", {"data": 2, "tag": "x"}, 3, {"data": 4, "tag": "x"}, 5)
    lab.delete("a", match="x")
    lab.clock.advance(1001)
    lab.delete("b", before=2)
    lab.records("b")
    assert lab.topic("b").head == 3
    assert lab.router("r").forwarded == 3
    assert lab.gaps("b") == [(1, 3, "source_trim")]


def test_a_hole_in_the_source_is_passed_on(lab: RouterLab) -> None:
    lab.put("a", cap_records=1)
    lab.route("ab", "a", "b")
    lab.route("bc", "b", "c")
    lab.write("a", 1)
    lab.background()
    lab.write_each("a", 3)
    lab.background()
    assert lab.gaps("b") == lab.gaps("c") == [(2, 3, "source_trim")]
    assert seqs_and_data(lab, "c") == [(1, 1), (4, 2)]


def test_a_cap_that_passes_a_hole_takes_it_to_the_front(lab: RouterLab) -> None:
    lab.put("a", cap_records=1)
    lab.put("b", cap_records=2)
    lab.route("r", "a", "b")
    lab.write("a", 1)
    lab.records("b")
    lab.write_each("a", 3)
    lab.records("b")
    lab.write("b", "x")
    lab.write("b", "y")
    assert lab.lines("b") == (6, 5, 5)
    state = lab.everything()
    lab.restart()
    assert lab.everything() == state


# --- by itself ----------------------------------------------------------------------------------------------


def test_a_window_ends_where_it_is_told_to(lab: RouterLab) -> None:
    lab.write_each("a", 9)
    runs = lab.topic("a").runs
    assert [run.base for run in runs] == [1, 5, 9]
    sizes = [1] * 9
    for most, last in ((4, 4), (5, 5), (8, 8), (20, 9)):
        for window in (
            read_window(lab.topic("a"), 0, most, 1 << 20, 9),
            read_window(lab.topic("a"), 0, 100, sum(sizes[:most]), 9),
        ):
            assert (window.last, window.rows.seqs.tolist()) == (last, list(range(1, last + 1)))
    assert read_window(lab.topic("a"), 0, 100, 0, 9).last == 0


def test_a_few_records_that_fit_use_up_what_a_window_may_hold(lab: RouterLab) -> None:
    for _ in range(3):
        lab.write("a", *["x" * 998] * 4)
    assert [run.base for run in lab.topic("a").runs] == [1, 5, 9]
    # The first four with their rows; behind them there is room for one more, as one is always taken.
    for most, last in ((4600, 5), (8600, 9), (20_000, 12)):
        window = read_window(lab.topic("a"), 0, 100, most, 12)
        assert (window.last, len(window.rows)) == (last, last)
    for most in (4, 5, 8):
        assert read_window(lab.topic("a"), 0, most, 1 << 20, 12).last == most


def test_a_window_begins_in_the_journal_where_its_first_record_does(lab: RouterLab) -> None:
    lab.write_each("a", 9)
    first, second, _ = lab.topic("a").runs
    assert first.start_position < second.start_position
    assert read_window(lab.topic("a"), 0, 100, 1 << 20, 9).position == first.start_position
    assert read_window(lab.topic("a"), 4, 100, 1 << 20, 9).position == second.start_position


def test_loss_is_told_where_it_was_and_no_further(lab: RouterLab) -> None:
    lab.put("a", cap_records=3)
    lab.write_each("a", 5)
    lab.topic("a").add_hole(6, 9, ledger.LOST, found_ms=1)
    lost = {
        (after, upto): [
            (first, last) for first, last, _ in read_window(lab.topic("a"), after, 9, 99, upto).lost
        ]
        for after, upto in ((0, 1), (0, 5), (1, 5), (2, 5), (5, 9), (7, 8), (0, 9))
    }
    assert lost == {
        (0, 1): [(1, 1)],
        (0, 5): [(1, 2)],
        (1, 5): [(2, 2)],
        (2, 5): [],
        (5, 9): [(6, 9)],
        (7, 8): [(8, 8)],
        (0, 9): [(1, 2), (6, 9)],
    }


def test_a_run_of_which_all_is_deleted_is_passed_over(lab: RouterLab) -> None:
    lab.pulls = False
    lab.route("r", "a", "b")
    for first in (1, 5, 9):
        lab.write("a", *range(first, first + 4))
    lab.delete("a", seqs=[5, 6, 7, 8])
    assert [run.live_count for run in lab.topic("a").runs] == [4, 0, 4]
    lab.background()
    assert lab.data("b") == [1, 2, 3, 4, 9, 10, 11, 12]
    assert lab.gaps("b") == []
