"""Send the same random requests to two servers and compare the answers and what is read later.

python -m tests.compare --old CHECKOUT --new CHECKOUT [--requests 100000] [--seed 1]
python -m tests.compare --turns CHECKOUT [--requests 100000] [--seed 1]

A checkout is a folder with .venv and src; the path of a Python that has the package will do as well. With
--turns, one version is compared with itself: one server gets each request alone, the other one gets the
requests of many connections in one turn of its event loop.

The requests are those of many short histories, which the seed chooses. --history N repeats a single one. All
of an answer is compared but times, durations, effective priorities and the header Date; with --turns, epochs
are compared by their order in each lane. The exit code is 1 when anything differs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, count
from pathlib import Path
from random import Random

from tests.compare.lanes import Lane, after_restart, lane, shared
from tests.compare.maker import Burst, Maker, describe
from tests.compare.servers import FIRST_NUMBERS, MASTER, Answer, Driver, Normal, Request, Server

REQUESTS = 100_000
# The requests between two restarts. Each second time the servers have API keys.
REQUESTS_OF_A_ROUND = 5000
# The servers get new data directories after so many rounds.
ROUNDS_OF_A_DIRECTORY = 4
# How many topics are read again after a restart.
MOST_READ_AGAIN = 60
MOST_LANES = 24
# How many requests before a difference are shown.
SHOWN = 12


@dataclass
class Side:
    """One lane on one of the two servers."""

    maker: Maker
    requests: Lane
    normal: Normal
    answers: list[Answer] | None = None

    def next_burst(self) -> Burst | None:
        try:
            return next(self.requests) if self.answers is None else self.requests.send(self.answers)
        except StopIteration:
            return None


@dataclass
class Compared:
    """One lane on both servers, and the last requests of it."""

    sides: tuple[Side, Side]
    last: deque[tuple[Request, int, int]] = field(default_factory=lambda: deque(maxlen=SHOWN))

    def next_bursts(self) -> tuple[Burst, Burst] | None:
        old, new = (side.next_burst() for side in self.sides)
        if old is None or new is None:
            return None
        return old, new


class Campaign:
    """Histories, one after the other, and what was found."""

    def __init__(
        self, servers: tuple[Server, Server], seed: int, *, is_turns: bool, most_differences: int
    ) -> None:
        self.servers = servers
        self.seed = seed
        self.requests = 0
        self.histories = 0
        self.differences: list[str] = []
        self.statuses: dict[str, Counter[int]] = {}
        self.restarts: Counter[str] = Counter()
        self.bursts: Counter[str] = Counter()
        self._is_turns = is_turns
        self._most = most_differences
        self._drivers = (Driver(servers[0], one_at_a_time=is_turns), Driver(servers[1]))

    @property
    def is_over(self) -> bool:
        return len(self.differences) >= self._most

    # --- rounds ---------------------------------------------------------------------------------------------

    def run(self, requests: int, only: int | None) -> None:
        rounds = max(2, round(requests / REQUESTS_OF_A_ROUND))
        numbers = count()
        for number in range(rounds):
            has_keys = number % 2 == 1
            if only is not None:
                # The same history as in a whole run needs the same keys.
                has_keys = only % 2 == 1
                numbers = count(only)
            self._start(has_keys=has_keys, is_new=number % ROUNDS_OF_A_DIRECTORY == 0)
            upto = requests if only is not None else requests * (number + 1) // rounds
            topics: list[str] = []
            while self.requests < upto and not self.is_over:
                # Histories with odd numbers are those with API keys.
                at = next(n for n in numbers if n % 2 == has_keys)
                topics += self._history(at, has_keys=has_keys)
                if only is not None:
                    break
            self._restart(number, topics, has_keys=has_keys)
            if self.is_over or only is not None:
                break

    def _start(self, *, has_keys: bool, is_new: bool) -> None:
        for server in self.servers:
            server.launch(has_keys=has_keys, is_new=is_new)
        for server in self.servers:
            server.wait_until_ready()
        if is_new:
            self._use_up_numbers()

    def _use_up_numbers(self) -> None:
        """Make topics until the numbers of those that follow have four digits.

        The numbers of a source are in the copies of routers. Lanes of one history may get them in another
        order, and the copies have to be of the same size all the same.
        """
        key = f"Authorization: Bearer {MASTER}\r\n"
        head = f"HTTP/1.1\r\nHost: localhost\r\n{key}Content-Length: 0\r\n\r\n"
        for start in range(0, FIRST_NUMBERS, 50):
            puts = [f"PUT /v0/topics/number-{at} {head}".encode() for at in range(start, start + 50)]
            requests = [Request(data, ("topics made first",)) for data in puts]
            for driver in self._drivers:
                driver.send({0: requests}, in_one_turn=False)
                if {answer.status for answer in driver.receive({0: requests})[0]} != {201}:
                    raise RuntimeError("topics could not be made")

    def _stop(self, *, kill: bool) -> None:
        for driver in self._drivers:
            driver.close()
        codes = [server.stop(kill=kill) for server in self.servers]
        self.restarts["SIGKILL" if kill else "SIGTERM"] += 1
        if codes[0] != codes[1]:
            self.differences.append(f"the exit codes after {'SIGKILL' if kill else 'SIGTERM'} are {codes}")

    def _restart(self, number: int, topics: list[str], *, has_keys: bool) -> None:
        """End both servers, start them again, and compare what is left; then end them."""
        kill = number // 2 % 2 == 1
        self._stop(kill=kill)
        self._start(has_keys=has_keys, is_new=False)
        random = Random(f"{self.seed}-after-{number}")
        again = random.sample(topics, min(len(topics), MOST_READ_AGAIN))
        make = partial(
            after_restart, f"{self.seed}-again-{number}", f"again-{number}", again, has_keys=has_keys
        )
        name = f"reads after restart {number} with {'SIGKILL' if kill else 'SIGTERM'}"
        if not self.is_over:
            # The lanes of these topics had epochs of their own.
            self._differ(name, [self._sides(make, has_others=True, after_kill=kill)], in_one_turn=False)
        self._stop(kill=not kill)

    # --- histories ------------------------------------------------------------------------------------------

    def _history(self, number: int, *, has_keys: bool) -> list[str]:
        """Compare one history, and return its topics."""
        random = Random(f"{self.seed}-{number}")
        if self._is_turns:
            lanes = random.randint(16, MOST_LANES)
        else:
            lanes = random.choice((1, 1, 1, 1, 1, 1, 2, 6, 16, 20))
        in_one_turn = lanes > 1 and (self._is_turns or random.random() < 0.7)
        luck = random.random()
        is_shared = lanes > 1 and luck < 0.3
        only = "plain" if lanes > 1 and luck > 0.85 else None
        if is_shared:
            lanes = random.choice((2, 4, lanes, 32))
        compared = []
        for at in range(lanes):
            make = partial(lane, f"{self.seed}-{number}-{at}", f"h{number}-{at}", only=only)
            if is_shared:
                make = partial(shared, f"{self.seed}-{number}", f"h{number}", at)
            compared.append(self._sides(partial(make, has_keys=has_keys), has_others=lanes > 1))
        self.histories += 1
        name = f"history {number}"
        if self._differ(name, compared, in_one_turn=in_one_turn, is_shared=is_shared):
            return []
        return [topic for one in compared for topic in one.sides[0].maker.heads]

    def _sides(
        self, make: Callable[[], tuple[Maker, Lane]], *, has_others: bool, after_kill: bool = False
    ) -> Compared:
        old, new = (Side(*make(), Normal(has_others=has_others, after_kill=after_kill)) for _ in range(2))
        return Compared((old, new))

    def _differ(
        self, name: str, lanes: list[Compared], *, in_one_turn: bool, is_shared: bool = False
    ) -> bool:
        """Send the bursts of all lanes at the same time; end when one differs, or when all have ended.

        With `is_shared`, the lanes write to one topic: their answers are compared in sorted order.
        """
        living = dict(enumerate(lanes))
        while living:
            bursts = {at: one.next_bursts() for at, one in living.items()}
            sent = {at: both for at, both in bursts.items() if both is not None}
            living = {at: living[at] for at in sent}
            if not sent:
                break
            pause_s = max(both[0].pause_s for both in sent.values())
            if pause_s:
                time.sleep(pause_s)
            of_old = {at: both[0].requests for at, both in sent.items() if both[0].requests}
            of_new = {at: both[1].requests for at, both in sent.items() if both[1].requests}
            for one in living.values():
                for side in one.sides:
                    side.answers = []
            for driver, requests in zip(self._drivers, (of_old, of_new), strict=True):
                driver.send(requests, in_one_turn=in_one_turn)
            answers = [
                driver.receive(requests)
                for driver, requests in zip(self._drivers, (of_old, of_new), strict=True)
            ]
            self.bursts[
                "in one turn" if in_one_turn else "of many lanes" if len(sent) > 1 else "of one lane"
            ] += 1
            if is_shared:
                answers = [_sorted(of_side) for of_side in answers]
            differs = False
            for at, burst in of_old.items():
                differs |= self._judge(name, at, living[at], burst, answers[0][at], answers[1][at])
                if differs and is_shared:
                    break
            if differs:
                # What follows would differ as well.
                for driver in self._drivers:
                    driver.close()
                return True
        return False

    def _judge(
        self,
        name: str,
        at: int,
        lane: Compared,
        requests: list[Request],
        old: list[Answer],
        new: list[Answer],
    ) -> bool:
        self.requests += len(requests)
        differs = False
        for request, one, other in zip(requests, old, new, strict=True):
            for feature in request.features:
                found = self.statuses.get(feature)
                if found is None:
                    found = self.statuses[feature] = Counter()
                found[one.status] += 1
            lane.last.append((request, one.status, other.status))
            normal = lane.sides[0].normal.of(one), lane.sides[1].normal.of(other)
            if normal[0] != normal[1] and not differs:
                differs = True
                self._note(name, at, lane, normal)
        lane.sides[0].answers, lane.sides[1].answers = old, new
        return differs

    def _note(
        self,
        name: str,
        at: int,
        lane: Compared,
        normal: tuple[tuple[int, bytes, bytes], tuple[int, bytes, bytes]],
    ) -> None:
        lines = [f"{name}, lane {at}: the answers to the last of these requests differ"]
        for number, (request, old, new) in enumerate(lane.last, 1 - len(lane.last)):
            lines.append(f"  {number:>3} {describe(request)}\n      old {old}, new {new}")
        for word, (status, head, body) in zip(("old", "new"), normal, strict=True):
            lines.append(f"  {word}: {status} {_around(body, normal[0][2], normal[1][2])}")
            if normal[0][1] != normal[1][1]:
                lines.append(f"    {head!r}")
        lines.append("  servers: " + ("ended" if any(s.has_ended() for s in self.servers) else "both run"))
        self.differences.append("\n".join(lines))


def _sorted(answers: dict[int, list[Answer]]) -> dict[int, list[Answer]]:
    """The same answers in the order of what they say, given to the lanes from the first one on."""
    normal = Normal(has_others=False)
    in_order = iter(sorted(chain.from_iterable(answers.values()), key=normal.of))
    return {lane: [next(in_order) for _ in found] for lane, found in sorted(answers.items())}


def _around(body: bytes, old: bytes, new: bytes) -> str:
    """The body, or the part of it in which the two begin to differ."""
    if len(body) < 1500:
        return repr(body)
    at = next((n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    start = max(at - 300, 0)
    return f"{len(body)} bytes, from {start} on: {body[start : at + 300]!r}"


def table(statuses: dict[str, Counter[int]]) -> str:
    """How often each shape and each feature of requests occurred, with which statuses."""
    width = max(map(len, statuses))
    lines = [f"{'shape or feature of a request':<{width}} | {'count':>6} | statuses", "-" * (width + 30)]
    for feature, found in sorted(statuses.items()):
        told = ", ".join(f"{status}: {number}" for status, number in sorted(found.items()))
        lines.append(f"{feature:<{width}} | {found.total():>6} | {told}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.compare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--old", type=Path, metavar="CHECKOUT")
    parser.add_argument("--new", type=Path, metavar="CHECKOUT")
    parser.add_argument("--turns", type=Path, metavar="CHECKOUT", help="compare one version with itself")
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--history", type=int, metavar="N", help="only this history")
    parser.add_argument("--most", type=int, default=10, help="stop after so many differences (%(default)s)")
    parser.add_argument(
        "--logs", type=Path, metavar="FOLDER", help="keep the logs and the data of the servers"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a variable of both servers, such as TOPICS_TEST_CODEC=python",
    )
    options = parser.parse_args()
    settings = dict(one.split("=", 1) for one in options.set)
    if (options.turns is None) == (options.old is None or options.new is None):
        parser.error("give either --old and --new, or --turns")
    old, new = (options.turns, options.turns) if options.turns else (options.old, options.new)
    with tempfile.TemporaryDirectory(prefix="topics-compare-") as temporary:
        folder = options.logs or Path(temporary)
        servers = Server(old, folder / "old", settings), Server(new, folder / "new", settings)
        for word, server in zip(("old", "new"), servers, strict=True):
            print(f"{word}: {server.package()}")
        print(f"seed {options.seed}, {options.requests} requests", flush=True)
        campaign = Campaign(
            servers, options.seed, is_turns=options.turns is not None, most_differences=options.most
        )
        began = time.monotonic()
        try:
            campaign.run(options.requests, options.history)
        finally:
            for server in servers:
                server.stop(kill=True)
        return report(campaign, time.monotonic() - began)


def report(campaign: Campaign, seconds: float) -> int:
    print(table(campaign.statuses))
    print()
    bursts = ", ".join(f"{number} {name}" for name, number in campaign.bursts.items())
    restarts = ", ".join(f"{number} by {name}" for name, number in campaign.restarts.items())
    print(f"{campaign.requests} requests to each server in {campaign.histories} histories, {seconds:.0f} s")
    print(f"bursts: {bursts}; ends of both servers: {restarts}")
    for word, server in zip(("old", "new"), campaign.servers, strict=True):
        complaints = server.complaints()
        if complaints:
            print(f"the log of the {word} server has {len(complaints)} lines about defects, the first ones:")
            print("\n".join(f"  {line[:300]}" for line in complaints[:5]))
    print(f"{len(campaign.differences)} differences")
    for text in campaign.differences:
        print()
        print(text)
    return 1 if campaign.differences else 0


if __name__ == "__main__":
    sys.exit(main())
