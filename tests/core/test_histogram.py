"""Histograms: a bound belongs to the values up to it, and what is written adds up."""

from __future__ import annotations

from topics.core.histogram import LATENCY_BOUNDS_S, Histogram


def test_a_value_on_a_bound_counts_for_it() -> None:
    histogram = Histogram((1.0, 2.5))
    for value in (0.5, 1.0, 1.1, 2.5, 2.6, 100.0):
        histogram.observe(value)
    assert list(histogram.cumulative()) == [("1", 2), ("2.5", 4), ("+Inf", 6)]
    assert histogram.count == 6
    assert histogram.total == 107.7


def test_bounds_are_written_without_exponents() -> None:
    names = [bound for bound, _ in Histogram(LATENCY_BOUNDS_S).cumulative()]
    assert names[:4] == ["0.0001", "0.00025", "0.0005", "0.001"]
    assert names[-3:] == ["2.5", "10", "+Inf"]
    assert [float(name) for name in names[:-1]] == list(LATENCY_BOUNDS_S)
