"""Errors for users are known again, also where Spark made text of them."""

from __future__ import annotations

import pytest

from pyspark_topics import errors
from pyspark_topics.errors import BatchTooLarge, ForUsers, LossRefused, PipelineFailed, written_for_users
from topics.client import Refused, TopicsError, Unreachable

OURS = [kind for kind in vars(errors).values() if isinstance(kind, type) and ForUsers in kind.__bases__]


@pytest.mark.parametrize("kind", [*OURS, Refused, Unreachable])
def test_a_failure_inside_spark_is_explained_in_our_words(kind: type[Exception]) -> None:
    error = Exception(
        "[STREAM_FAILED] Query terminated\n  File worker.py\n"
        f"{kind.__module__}.{kind.__name__}: one sentence: with a colon\n\n at org.apache.spark"
    )
    assert written_for_users(error) == "one sentence: with a colon"


def test_our_own_errors_speak_for_themselves() -> None:
    assert written_for_users(PipelineFailed("no space")) == "no space"
    assert written_for_users(BatchTooLarge("too much")) == "too much"
    assert written_for_users(TopicsError("not now")) == "not now"
    assert 'startingOffsets = {"a": 2}' in (written_for_users(LossRefused("a", 1, 2, "cap")) or "")
    again = str(LossRefused("t", 6, 9, "recreated"))
    assert "begins anew; seqs 6 to 9 were not read" in again
    assert '{"t": 0}' in again


def test_what_was_not_foreseen_is_not_for_users() -> None:
    assert written_for_users(ValueError("boom")) is None
    assert written_for_users(Exception("Traceback (most recent call last):\nValueError: boom")) is None
