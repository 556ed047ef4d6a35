"""Spark's Python processes on this machine: quick to start, and silent after Spark closes the connection.

    python -m pyspark_topics.workers MODULE     Spark's own daemon, which forks a worker for a task

Spark puts its own files first on the path of every worker, as an archive. Python caches nothing that it
compiles from an archive, so each process compiles PySpark again, and reads the six thousand names of one of
Spark's jars. pip has installed the same files unpacked and compiled. If Spark and its workers belong to one
installation, a script starts the workers: it removes both archives from the path and replaces Spark's daemon
by this module.
"""

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pyspark


def kept_script(environment: Mapping[str, str], name: str, text: str) -> Path | None:
    """Return the path of the script, in the user's cache or a fresh folder; None if neither is writable."""
    for folder in _folders(environment):
        script = folder / name
        with suppress(OSError):
            if not script.is_file() or script.read_text() != text:
                _write(script, text)
            return script
    return None


def _folders(environment: Mapping[str, str]) -> Iterator[Path]:
    cache = environment.get("XDG_CACHE_HOME")
    if cache is None and "HOME" in environment:
        cache = os.path.join(environment["HOME"], ".cache")
    if cache:
        yield Path(cache) / "topics"
    # Fresh, because a name that others can guess in a shared folder is a name they can take first.
    yield Path(tempfile.mkdtemp(prefix="topics-", dir=environment.get("TMPDIR")))


def quoted(path: str) -> str:
    return "'" + path.replace("'", "'\\''") + "'"


def _write(script: Path, text: str) -> None:
    """Complete under its final name from the first moment: another session may be starting, too."""
    script.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=script.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    os.chmod(temporary, 0o755)
    os.replace(temporary, script)


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
  set -- -m pyspark_topics.workers "$@"
fi
exec {python} "$@"
"""


def choose_python(environment: Mapping[str, str], *, is_local: bool) -> str:
    """Return the Python for Spark's workers. A choice of the user's is kept."""
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
