"""Spark's Python processes on this machine: quick to start, and silent when Spark has hung up on them.

    python -m pyspark_topics.processes.workers MODULE     Spark's own daemon, which forks a worker for a task

Spark puts its own files in front of every worker's path as an archive, and Python keeps nothing of what it
compiles out of an archive: each process compiles PySpark anew, and is busy with that for longer than with all
else before its first record. pip has unpacked the same files, and compiled them once. Beside them is one of
Spark's jars, in which there is no Python: a process reads its six thousand names when it starts, and several
times again when Spark tells it where its files are, for a fifth of a second in all. So where Spark and its
workers are of one installation, workers are started by a script that takes both out of their path, and puts
this module in the place of Spark's daemon.
"""

import hashlib
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pyspark

from pyspark_topics.processes.scripts import kept_script, quoted

_SHIM = """#!/bin/sh
# Starts {python} without archives that it has unpacked, or has no use for. Written by pyspark_topics.
set -f
kept=
before=$IFS
IFS=:
for folder in $PYTHONPATH; do
  case "$folder" in
    {pyspark}/python/lib/*.zip|{pyspark}/jars/*.jar) ;;
    *) kept="${{kept:+$kept:}}$folder" ;;
  esac
done
IFS=$before
export PYTHONPATH="$kept"
if [ "$1 $2" = "-m pyspark.daemon" ]; then
  shift 2
  set -- -m pyspark_topics.processes.workers "$@"
fi
exec {python} "$@"
"""


def choose_python(environment: Mapping[str, str], *, is_local: bool) -> str:
    """What Spark is to start its workers with. What the user chose stays."""
    chosen, quick = environment.get("PYSPARK_PYTHON"), _quick_python(environment)
    if chosen not in (None, sys.executable, quick):
        return chosen
    # Executors on other machines do not have our script.
    return quick if is_local else sys.executable


def _quick_python(environment: Mapping[str, str]) -> str:
    text = _SHIM.format(python=quoted(sys.executable), pyspark=quoted(str(Path(pyspark.__file__).parent)))
    # Each installation has its own.
    name = f"python/{hashlib.sha256(text.encode()).hexdigest()[:16]}/python"
    script = kept_script(environment, name, text)
    return sys.executable if script is None else str(script)


Worker = Callable[..., int]


def quiet(worker: Worker) -> Worker:
    """Spark hangs up on a worker whose rows it needs no more. It knows, and a trace tells nobody anything."""

    def work(*arguments: object) -> int:
        try:
            return worker(*arguments)
        except (BrokenPipeError, ConnectionResetError):
            return os.EX_IOERR

    return work


def main() -> None:
    from pyspark import daemon

    daemon.worker = quiet(daemon.worker)
    daemon.manager()


if __name__ == "__main__":
    main()
