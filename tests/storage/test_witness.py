"""The page that says what a killed process had promised."""

from pathlib import Path

from tests.support.disk import HookedDisk
from topics.core.clock import ManualClock
from topics.log.clock import WAITED_FOR_MS, ShownTime
from topics.storage.filesystem import Filesystem
from topics.storage.witness import FILE_NAME, Witness

THIS, NEXT = HookedDisk(boot=b"1" * 32), HookedDisk(boot=b"2" * 32)


def open_witness(directory: Path, fs: Filesystem = THIS) -> Witness:
    return Witness(fs, str(directory))


def test_a_killed_process_leaves_its_word(tmp_path: Path) -> None:
    witness = open_witness(tmp_path)
    witness.begin(1000, 5)
    witness.acked(2**64 - 1)
    witness.synced(2**40 + 3)
    witness.clock(1_700_000_000_000)
    # No close: the next one finds the page as it is.
    found = open_witness(tmp_path)
    said = found.previous
    assert (said.acked, said.synced, said.clock_ms) == (2**64 - 1, 2**40 + 3, 1_700_000_000_000)
    assert said.same_boot
    assert not said.clean
    found.close(clean=False)
    witness.close(clean=False)


def test_another_boot_is_noticed(tmp_path: Path) -> None:
    witness = open_witness(tmp_path)
    witness.begin(10, 20)
    witness.close(clean=False)
    found = open_witness(tmp_path, NEXT)
    assert not found.previous.same_boot
    assert found.previous.synced == 10
    found.close(clean=False)


def test_a_page_that_is_not_ours_says_nothing(tmp_path: Path) -> None:
    witness = open_witness(tmp_path)
    witness.begin(10, 20)
    witness.close(clean=True)
    data = bytearray((tmp_path / FILE_NAME).read_bytes())
    data[0] ^= 1
    (tmp_path / FILE_NAME).write_bytes(data)
    found = open_witness(tmp_path)
    said = found.previous
    assert (said.acked, said.synced, said.clock_ms) == (0, 0, 0)
    assert not said.clean
    assert not said.same_boot
    found.close(clean=False)


def test_what_is_proven_depends_on_the_boot(tmp_path: Path) -> None:
    witness = open_witness(tmp_path)
    witness.begin(100, 5)
    witness.synced(200)
    witness.acked(300)
    witness.close(clean=False)
    for fs, proven in ((THIS, 300), (NEXT, 200)):
        again = open_witness(tmp_path, fs)
        assert again.previous.proven == proven
        again.close(clean=False)


def test_the_time_that_is_shown_never_goes_back(tmp_path: Path) -> None:
    witness, clock = open_witness(tmp_path), ManualClock(1000)
    shown = ShownTime(clock, witness)
    assert shown.now_ms() == 1000
    clock.set(400)
    assert shown.now_ms() == 1000
    clock.set(1001)
    assert shown.now_ms() == 1001
    # What an earlier process had shown.
    shown.raise_floor(5000)
    shown.raise_floor(3000)
    assert shown.now_ms() == 5000
    witness.close(clean=False)


def test_the_page_hears_of_the_time_before_readers_do(tmp_path: Path) -> None:
    witness = open_witness(tmp_path)
    witness.begin(0, 5)
    ShownTime(ManualClock(7000), witness).now_ms()
    found = open_witness(tmp_path)
    assert found.previous.clock_ms == 7000
    found.close(clean=False)
    witness.close(clean=False)


def test_a_clock_that_is_a_little_behind_is_waited_for_and_one_that_was_set_back_is_followed(
    tmp_path: Path,
) -> None:
    clock, witness = ManualClock(1_000_000), open_witness(tmp_path)
    shown = ShownTime(clock, witness)
    told: list[int] = []

    def set_back(now: int) -> bool:
        # Whoever writes it down asks for the time.
        told.append(shown.now_ms())
        shown.restart(shown.floor_ms, now)
        return True

    assert shown.now_ms() == 1_000_000
    clock.step(-WAITED_FOR_MS - 1)
    # Before anybody can be told, time stands still.
    assert shown.now_ms() == 1_000_000
    clock.step(1)
    shown.set_back = set_back
    assert (shown.now_ms(), told) == (1_000_000, [])
    clock.step(-1)
    assert (shown.now_ms(), told) == (1_000_000 - WAITED_FOR_MS - 1, [1_000_000])
    assert shown.left_ms == 1_000_000
    witness.close(clean=False)
