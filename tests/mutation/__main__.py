"""Mutate modules of src/topics, and print the mutants that no test notices."""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.progress import track

from tests.mutation.mutants import Mutant
from tests.mutation.survey import Verdict, mutants_of, survey


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="a module or folder below src/topics")
    parser.add_argument("--all", action="store_true", help="mutate all modules")
    parser.add_argument("--sample", metavar="N|SHARE", help="try so many mutants, or a share such as 0.1")
    parser.add_argument("--seed", type=int, help="repeat the sample of an earlier run")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--tests", nargs="+", default=[], metavar="PATH", help="run only these tests")
    parser.add_argument("--list", action="store_true", help="print the mutants and stop")
    chosen = parser.parse_args(arguments)
    if chosen.all == bool(chosen.modules):
        parser.error("name modules, or give --all")
    found = mutants_of(["."] if chosen.all else chosen.modules)
    if chosen.sample is not None:
        seed = random.randrange(1_000_000) if chosen.seed is None else chosen.seed
        print(f"--seed {seed}")
        found = sampled(found, chosen.sample, seed)
    if chosen.list:
        print(*map(shown, found), sep="\n")
        return 0
    verdicts = []
    progress = Console(stderr=True)
    running = survey(found, chosen.jobs, chosen.tests)
    for verdict in track(running, "", total=len(found), console=progress, transient=True):
        verdicts.append(verdict)
        if not verdict.killed:
            print(shown(verdict.mutant) + ("" if verdict.tests else "  (no test runs it)"), flush=True)
    print(summary(verdicts))
    return int(not all(verdict.killed for verdict in verdicts))


def sampled(found: list[Mutant], sample: str, seed: int) -> list[Mutant]:
    """`sample` is a number of mutants, or a share if it has a point."""
    count = round(float(sample) * len(found)) if "." in sample else int(sample)
    picked = random.Random(seed).sample(range(len(found)), min(count, len(found)))
    return [found[index] for index in sorted(picked)]


def shown(mutant: Mutant) -> str:
    return f"src/topics/{mutant.path}:{mutant.line}: `{mutant.old}` -> `{mutant.new}`"


def summary(verdicts: Sequence[Verdict]) -> str:
    tried = Counter(verdict.mutant.path for verdict in verdicts)
    survivors = Counter(verdict.mutant.path for verdict in verdicts if not verdict.killed)
    lines = [f"{path}: {survivors[path]} of {count} mutants survive" for path, count in sorted(tried.items())]
    if len(tried) > 1:
        lines.append(f"in all: {survivors.total()} of {tried.total()} mutants survive")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
