"""What is judged of writes over HTTP."""

from benchmarks.beside_redis import BARS, BATCHES, BATCHES_SYNCED, NAMED_BATCHES, SINGLE, SINGLE_SYNCED
from benchmarks.http_write import bar_for


def test_single_appends_are_judged_with_the_compiled_generator_alone() -> None:
    for case in (SINGLE, SINGLE_SYNCED):
        assert case in BARS
        assert bar_for(case) is None
    for case in (BATCHES, NAMED_BATCHES, BATCHES_SYNCED):
        assert bar_for(case) == BARS[case]
