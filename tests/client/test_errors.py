"""Errors as programs meet them, also those that come out of another process."""

from __future__ import annotations

import pickle

import pytest

from topics import (
    ConfigDiffers,
    Forbidden,
    InvalidData,
    LeaseLost,
    Lost,
    NoJob,
    RecordGone,
    RecordsLost,
    Refused,
    Restarted,
    TopicNotFound,
    TopicRestarted,
    TopicsError,
    Unauthorized,
    Uncertain,
    Unreachable,
)

ERRORS = (
    Refused(400, "invalid_request", "no", {"seq": 1}, "r-1"),
    TopicNotFound(404, "topic_not_found", "no"),
    Unauthorized(401, "unauthorized", "no"),
    Forbidden(403, "forbidden", "no"),
    RecordGone(410, "record_gone", "gone", {"why": "deleted"}),
    Unreachable("away"),
    Uncertain("who knows", idempotency_key="k"),
    RecordsLost(Lost("t", 1, 2, 3, "cap", 2)),
    TopicRestarted(Restarted("t", 2, 1)),
    ConfigDiffers("t", {"cap_records": (1, 2)}),
    InvalidData("t", 3, "no number"),
    LeaseLost("t", 4),
    NoJob("none"),
)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_comes_out_of_another_process_as_it_was(error: TopicsError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert (str(copy), copy.args, vars(copy)) == (str(error), error.args, vars(error))
    assert copy.code == error.code != ""
