"""`topics serve` by a clock that a test may set: as many milliseconds off as a file says. A program."""

import os
import sys
import time

from topics.cli.main import main
from topics.core.clock import NS_PER_MS, SystemClock


def stepped_ns() -> int:
    with open(os.environ["CLOCK_OFF_FILE"]) as file:
        return time.time_ns() + int(file.read() or 0) * NS_PER_MS


SystemClock.now_ns = staticmethod(stepped_ns)  # type: ignore[assignment]
sys.exit(main())
