"""`topics`: dispatches to the verbs. A user's mistake is one readable line and exit code 2."""

import argparse
import sys
from collections.abc import Sequence

import topics
from topics.cli import backup, check, compact, config, cursors, key, pipeline, restore, serve, up
from topics.cli.work import answering


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="topics", description="An append-only event log that never loses quietly."
    )
    parser.add_argument("--version", action="version", version=f"topics {topics.__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb in (serve, up, config, key, pipeline, cursors, backup, restore, check, compact):
        verb.add_parser(verbs)
    chosen = parser.parse_args(arguments)
    return answering(lambda: chosen.run(chosen))


if __name__ == "__main__":
    sys.exit(main())
