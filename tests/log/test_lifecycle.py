"""Topics come, change and go."""

from __future__ import annotations

import pytest

from tests.log.harness import Lab
from topics.values.errors import ApiError


def test_epochs_rise_across_restarts_and_deletions(lab: Lab) -> None:
    epochs = []
    for everything in (False, True, True):
        lab.write_each("t", 1)
        epochs.append(lab.topic("t").id)
        lab.drop("t")
        lab.checkpoint(everything=everything)
        lab.restart()
    assert epochs == sorted(set(epochs))


def test_a_put_replaces_every_setting(lab: Lab) -> None:
    lab.put("t", ttl_ms=5, cap_records=7, discard="reject")
    lab.put("t")
    config = lab.topic("t").config
    assert (config.ttl_ms, config.cap_records, config.discard) == (0, 0, "old")
    lab.put("q", type="queue")
    with pytest.raises(ApiError) as caught:
        lab.put("q")
    assert caught.value.code == "topic_exists_incompatible"
