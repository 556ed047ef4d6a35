"""A few rounds of killing; `python -m tests.kill.rounds` runs as many as you like."""

import os

from tests.kill.rounds import Rounds


def test_a_killed_server_keeps_its_promises(tmp_path):
    seed = int(os.environ.get("TOPICS_TEST_SEED", "1"))
    print(f"seed {seed}")
    rounds = Rounds(tmp_path, seed)
    for number in range(1, 6):
        assert rounds.run(number) == []
    # The comparison is worth something only if there was something to compare.
    assert rounds.known.answered > 50
    assert rounds.close() == []
