from topics.http.admission.readiness import Readiness


def test_closed_until_admitted_and_never_again_after_draining():
    readiness = Readiness(lambda: 0.25)
    assert not readiness.open
    refusal = readiness.refusal()
    assert (refusal.code, refusal.detail, refusal.retry_after_s) == (
        "not_ready",
        {"replay_progress": 0.25},
        1,
    )
    readiness.admit()
    assert readiness.open
    assert readiness.replay_progress() == 1.0
    readiness.drain()
    readiness.admit()
    assert not readiness.open
    assert readiness.refusal().code == "shutting_down"


def test_progress_stays_between_zero_and_one():
    assert Readiness(lambda: 7).replay_progress() == 1.0
    assert Readiness(lambda: -1).replay_progress() == 0.0
    assert Readiness().replay_progress() == 0.0
