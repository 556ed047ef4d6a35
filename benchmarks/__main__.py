"""`python -m benchmarks`: run them all, or those you name, and say what was reached."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.append_shapes import SHAPE_NAMES
from benchmarks.areas import AREAS, ONLY_WHEN_NAMED, Area
from benchmarks.contenders import PYTHON_CODEC
from benchmarks.figures import Figure, table
from benchmarks.report import Report, save, write_readme
from benchmarks.session import FULL, QUICK, Session, ShapeOptions, machine, progress
from benchmarks.shapes import command_of

_PYTHON_CODEC = "--python-codec"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        """One line that says what is wrong; the rest is behind --help."""
        self.exit(2, f"benchmarks: {message} (see python -m benchmarks --help)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"areas: {', '.join(AREAS)}")
    parser.add_argument("--list", action="store_true", help="name the areas and stop")
    parser.add_argument("--quick", action="store_true", help="less work, rougher figures")
    parser.add_argument(
        _PYTHON_CODEC,
        action="store_true",
        help="run our servers with the codec in Python; the figures get headings of their own",
    )
    shapes = parser.add_argument_group("the area shapes")
    shapes.add_argument(
        "--only", nargs="+", default=[], metavar="SHAPE", help=f"shapes: {', '.join(SHAPE_NAMES)}"
    )
    shapes.add_argument("--keys", action="store_true", help="also on a server that asks for API keys")
    shapes.add_argument(
        "--server",
        action="append",
        default=[],
        type=Path,
        metavar="CHECKOUT",
        help="measure the server of this checkout instead, which has a .venv; several are measured in turns",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file as well")
    parser.add_argument(
        "--write-readme", action="store_true", help="put the figures into benchmarks/README.md"
    )
    return parser


def main(arguments: Sequence[str], areas: Mapping[str, Area] = AREAS) -> int:
    """Run benchmarks. Tests replace `areas`."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.list:
        for name in AREAS:
            print(f"{name} (only when named)" if name in ONLY_WHEN_NAMED else name)
        return 0
    unknown = [name for name in options.names if name not in areas]
    if unknown:
        parser.error(f"no area is called {', '.join(unknown)}; there are {', '.join(AREAS)}")
    if options.json and not options.json.absolute().parent.is_dir():
        parser.error(f"--json: there is no directory {options.json.absolute().parent}")
    strange = [name for name in options.only if name not in SHAPE_NAMES]
    if strange:
        parser.error(f"no shape is called {', '.join(strange)}; there are {', '.join(SHAPE_NAMES)}")
    for checkout in options.server:
        if not command_of(checkout).exists():
            parser.error(f"--server: there is no {command_of(checkout)}")
    if options.python_codec and not PYTHON_CODEC.items() <= os.environ.items():
        _start_again(arguments)
    names = options.names or [name for name in areas if name not in ONLY_WHEN_NAMED]
    shapes = ShapeOptions(only=tuple(options.only), api_keys=options.keys, servers=tuple(options.server))
    session = Session(QUICK if options.quick else FULL, progress, shapes)
    report = run({name: areas[name] for name in names}, session, repeatable(options))
    print(f"{report.command} on {report.machine}\n")
    print(table(report.figures))
    for area, without in report.left_out.items():
        print(f"{area}: left out: {'; '.join(without)}")
    for area, reason in report.failures.items():
        print(f"{area} could not be measured: {reason}")
    if options.json:
        save(report, options.json)
    if options.write_readme:
        write_readme(report)
    return 1 if report.failures else 0


def _start_again(arguments: Sequence[str]) -> None:
    """Replace this process, which is a server in some areas and has chosen its codec already."""
    environment = os.environ | PYTHON_CODEC
    os.execve(sys.executable, [sys.executable, "-m", "benchmarks", *arguments], environment)


def repeatable(options: argparse.Namespace) -> list[str]:
    """The arguments, but for where the figures went: that is of this machine."""
    switches = {
        "--quick": options.quick,
        _PYTHON_CODEC: options.python_codec,
        "--keys": options.keys,
        "--only": options.only,
    }
    servers = [word for checkout in options.server for word in ("--server", checkout.resolve().name)]
    return [*options.names, *(switch for switch, is_on in switches.items() if is_on), *options.only, *servers]


def run(areas: Mapping[str, Area], session: Session, arguments: Sequence[str]) -> Report:
    # These figures do not replace those of the native codec.
    apart = " with the codec in Python" if _PYTHON_CODEC in arguments else ""
    report = Report(shlex.join(["python", "-m", "benchmarks", *arguments]), machine(), [], {})
    # A wrong interpreter is noticed before hours are spent on it.
    session.say(f"Python {report.machine.python}")
    for name, measure in areas.items():
        session.say(f"{name}:")
        try:
            for figure in measure(session):
                figure.area += apart
                report.figures.append(figure)
                session.say(_line(figure))
        except (OSError, RuntimeError, AssertionError) as error:
            # The others are still worth having.
            report.failures[name + apart] = str(error).strip().rpartition("\n")[2] or type(error).__name__
            session.say(f"  not measured: {error}")
    report.left_out = {name + apart: without for name, without in session.left_out.items()}
    report.machine.load_after = os.getloadavg()[0]
    return report


def _line(figure: Figure) -> str:
    return "    " + table([figure]).splitlines()[2]


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
