"""Topics with a past: appends, deletes by seq and tag, caps and expiry in random order."""

from __future__ import annotations

import random

from tests.spark.server import Server


def random_history(server: Server, topic: str, dice: random.Random) -> None:
    server.configure(topic, cap_records=dice.choice([0, 0, 30, 60]))
    for _ in range(dice.randrange(1, 12)):
        match dice.randrange(6):
            case 0:
                head = server.state(topic)["head_seq"]
                server.delete(topic, before_seq=dice.randrange(head + 2))
            case 1:
                server.delete(topic, match=f"t{dice.randrange(5)}")
            case 2:
                server.configure(topic, cap_records=dice.choice([0, 10, 40]))
            case 3:  # what is a few milliseconds old expires, and stays gone when the limit is lifted
                server.configure(topic, ttl_ms=2)
                server.state(topic)
                server.configure(topic)
            case _:
                count = dice.randrange(1, 40)
                server.append(topic, *({"data": n, "tag": f"t{dice.randrange(5)}"} for n in range(count)))
