from topics.http.gate import Gate


def test_closed_until_admitted_and_never_again_after_draining():
    gate = Gate(lambda: 0.25)
    assert not gate.open
    refusal = gate.refusal()
    assert (refusal.code, refusal.detail, refusal.retry_after_s) == (
        "not_ready",
        {"replay_progress": 0.25},
        1,
    )
    gate.admit()
    assert gate.open
    assert gate.replay_progress() == 1.0
    gate.drain()
    gate.admit()
    assert not gate.open
    assert gate.refusal().code == "shutting_down"


def test_progress_stays_between_zero_and_one():
    assert Gate(lambda: 7).replay_progress() == 1.0
    assert Gate(lambda: -1).replay_progress() == 0.0
    assert Gate().replay_progress() == 0.0
