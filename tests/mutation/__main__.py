"""Prints, for every promise, the mutation that breaks it and whether the proof caught it."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from tests.mutation import document, survey
from tests.mutation.mutations import MUTATIONS
from tests.mutation.runner import Mutation, Verdict, judge, workshop


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument("names", nargs="*", help="only these")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    parser.add_argument("--document", action="store_true", help="write the promises into docs/guarantees.md")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="so many at a time")
    parser.add_argument(
        "--survey",
        nargs="+",
        metavar="PATH",
        help="try every boundary, min and max, and early return of these modules or folders of src/topics",
    )
    parser.add_argument("--sample", type=float, default=1.0, help="of a survey, only this share")
    parser.add_argument("--seed", type=int, default=0, help="which share")
    parser.add_argument("--kept", type=Path, help="a file that keeps which tests come along which lines")
    chosen = parser.parse_args()
    if chosen.list:
        print(*(mutation.name for mutation in MUTATIONS), sep="\n")
        return 0
    if chosen.document:
        document.write(MUTATIONS)
        return 0
    if chosen.survey:
        return go_through(chosen.survey, chosen.sample, chosen.seed, chosen.kept)
    unknown = set(chosen.names) - {mutation.name for mutation in MUTATIONS}
    if unknown:
        print(f"no such mutation: {', '.join(sorted(unknown))}; --list shows them", file=sys.stderr)
        return 2
    picked = [mutation for mutation in MUTATIONS if not chosen.names or mutation.name in chosen.names]
    verdicts = shown_meanwhile(picked, chosen.jobs)
    Console().print(table(verdicts))
    escaped = [verdict.mutation.name for verdict in verdicts if not verdict.caught]
    if escaped:
        print(f"not caught: {', '.join(escaped)}", file=sys.stderr)
    print(share(len(escaped), len(verdicts)))
    return 1 if escaped else 0


def share(survivors: int, tried: int, alike: int = 0) -> str:
    others = f"; {alike} more make no difference" if alike else ""
    return f"{survivors} of {tried} changes were not noticed: {survivors / max(tried, 1):.1%}{others}"


def go_through(paths: list[str], sample: float, seed: int, kept: Path | None) -> int:
    """Prints what no test noticed, and the share of it."""
    found: dict[str, survey.Found] = {}
    with workshop() as place:
        judges = survey.watch(place, kept)
        for module, mutant, noticed, why in survey.survey(place, judges, survey.modules(paths), sample, seed):
            found[module.path] = module
            if noticed and why is None:
                continue
            seen = "" if judges.of(module.path, mutant.line) else " (no test comes here)"
            if why is not None:
                seen = f": is noticed, though: {why}" if noticed else f": makes no difference: {why}"
            print(f"{module.path}:{mutant.line}: {mutant.what.strip()}{seen}", flush=True)
    for module in found.values():
        print(f"{module.path}: {share(len(module.left), module.tried, len(module.alike))}")
    left, tried = sum(len(m.left) for m in found.values()), sum(m.tried for m in found.values())
    print(share(left, tried, sum(len(m.alike) for m in found.values())))
    return 1 if left else 0


def shown_meanwhile(mutations: list[Mutation], jobs: int) -> list[Verdict]:
    verdicts = []
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=len(mutations))
        for verdict in judge(mutations, jobs):
            progress.update(task, advance=1, description=verdict.mutation.name)
            if not verdict.caught:
                progress.console.print(f"not caught: {verdict.mutation.name}: {escape(verdict.said)}")
            verdicts.append(verdict)
    return sorted(verdicts, key=lambda verdict: mutations.index(verdict.mutation))


def table(verdicts: list[Verdict]) -> Table:
    shown = Table("mutation", "promise", "caught", "s", "by")
    for verdict in verdicts:
        caught = "yes" if verdict.caught else "NO"
        # Names of tests have brackets, which would be taken for the beginning of a colour.
        by = escape(verdict.by or verdict.said)
        shown.add_row(verdict.mutation.name, verdict.mutation.promise, caught, f"{verdict.seconds:.0f}", by)
    return shown


if __name__ == "__main__":
    sys.exit(main())
