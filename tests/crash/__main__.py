"""`python -m tests.crash --seed 7 --steps 1000000`: a long random run, shown as it goes, with its table."""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback

from tests.crash.simulator import Simulation


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--steps", type=int, default=100_000)
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)  # recovery has much to say about damage, and here there is a lot of it
    print(f"seed {arguments.seed}, {arguments.steps} steps", flush=True)
    simulation = Simulation(arguments.seed)
    started = time.monotonic()
    shown = started

    def progress(steps: int) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown >= 5:
            shown = now
            rate = steps / (now - started)
            line = f"{steps} steps, {simulation.crashes} crashes, {rate:.0f} steps/s"
            print(line, file=sys.stderr, flush=True)

    try:
        simulation.run(arguments.steps, progress)
    except BaseException:
        traceback.print_exc()
        again = f"make simulate SEED={arguments.seed} STEPS={simulation.steps}"
        print(f"failed at step {simulation.steps}; to see it again: {again}")
        return 1
    finally:
        simulation.close()
    took = time.monotonic() - started
    print(simulation.table())
    print(
        f"{simulation.steps} steps clean: {simulation.crashes} crashes in {simulation.worlds} worlds, "
        f"{took:.0f} s, {simulation.steps / took:.0f} steps/s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
