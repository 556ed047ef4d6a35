"""Figures of a pipeline: rate, lag and time left."""

import pytest

from pyspark_topics.pipelines.progress import Progress


def test_rate_lag_and_time_left() -> None:
    now = 100.0
    progress = Progress("lake", "archive", clock=lambda: now)
    progress.say("running")
    progress.expect(500)
    assert progress.figures().seconds_left is None
    now += 2.0
    progress.advance(100, lag=400, lost=1)
    one = progress.figures()
    assert (one.records, one.batches, one.gaps, one.rate, one.lag) == (100, 1, 1, 50.0, 400)
    assert one.seconds_left == 8.0
    assert one.as_text() == "lake (archive) running, 100 records, 50/s, 1 gaps, lag 400, 8 s left"
    for _ in range(30):  # the rate is that of the last seconds, not of all time
        now += 1.0
        progress.advance(10, lag=0)
    assert progress.figures().rate == pytest.approx(10.0)
