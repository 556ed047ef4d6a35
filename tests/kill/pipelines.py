"""Pipelines that run while their server is killed, and are killed themselves: a route, a load, two archives.

    plain ─ route ─▶ routed      files ─ load ─▶ loaded      plain ─ archive, archive ─▶ one table

Each runs as a user would run it, by the command, in a process group of its own.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
from deltalake import DeltaTable

from tests.kill.checks import Found
from tests.kill.clients import Caller
from tests.support import eventually

ROUTED, LOADED = "routed", "loaded"
LINES = 50
# One of them is killed in so many rounds.
KILL_ONE_IN = 4
# For a last run, on a machine that does other things as well.
LAST_RUN_S = 600
ATTEMPTS = 3

_DECLARATIONS = {
    "route": (
        'kind = "route"\ntopics = ["{source}"]\ninto = "routed"\nevery_s = 0.2\n'
        'sql = "SELECT data FROM records"'
    ),
    "lake-a": 'kind = "archive"\ntopics = ["{source}"]\ntable = "{folder}/lake"\nevery_s = 0.5',
    "lake-b": 'kind = "archive"\ntopics = ["{source}"]\ntable = "{folder}/lake"\nevery_s = 0.7',
    "files": 'kind = "load"\nfiles = ["{folder}/files/*.jsonl"]\ninto = "loaded"',
}
# Which of them share a process: two archives of one table do not.
_PROCESSES = {"first": ("route", "lake-a"), "second": ("lake-b",), "load": ("files",)}


class Pipelines:
    def __init__(self, url: str, source: str, folder: Path, seed: int) -> None:
        self._folder, self._source, self._url = folder, source, url
        self._random = random.Random(f"pipelines/{seed}")
        self._lines: list[str] = []
        self.kills = 0
        self.compared = ""
        # Those that are to be killed, as soon as they do something.
        self._condemned: set[str] = set()
        # What their logs had when they were started last.
        self._said: dict[str, int] = {}
        (folder / "files").mkdir(parents=True)
        for process, names in _PROCESSES.items():
            (folder / f"{process}.toml").write_text(self._declaration(process, names))
        self._add_file()
        self._running = {process: self._start(process) for process in _PROCESSES}

    def _declaration(self, process: str, names: tuple[str, ...]) -> str:
        head = f'url = "{self._url}"\nstate = "{self._folder / process}"\n'
        tables = [
            f"[pipeline.{name}]\n{_DECLARATIONS[name].format(source=self._source, folder=self._folder)}\n"
            for name in names
        ]
        return "\n".join([head, *tables])

    def _start(self, process: str, *more: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "topics", "pipeline", "run", f"{self._folder / process}.toml"]
        if process != "load" and not more:
            command.append("--restart")
        with (self._folder / f"{process}.log").open("ab") as log:
            self._said[process] = log.tell()
            return subprocess.Popen(
                [*command, "--master", "local[1]", *more],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def _add_file(self) -> None:
        """Complete under its name from the first moment, as files that are loaded have to be."""
        number = len(self._lines) // LINES
        lines = [json.dumps({"file": number, "line": line}, separators=(",", ":")) for line in range(LINES)]
        draft = self._folder / f"draft-{number}"
        draft.write_text("\n".join(lines) + "\n")
        draft.rename(self._folder / "files" / f"{number:05}.jsonl")
        self._lines += lines

    def disturb(self) -> None:
        """Once a round: another file, and perhaps a driver that is killed, with its JVM or without.

        On a busy machine Spark takes many rounds to start. To kill it before that proves nothing.
        """
        self._add_file()
        if self._random.random() < 1 / KILL_ONE_IN:
            self._condemned.add(self._random.choice(list(_PROCESSES)))
        for process in sorted(filter(self._has_moved, self._condemned)):
            self._kill(self._running[process], alone=self._random.random() < 0.5)
            self._condemned.discard(process)
            self.kills += 1
        for process, running in self._running.items():
            if running.poll() is not None:
                self._running[process] = self._start(process)

    def wait_until_all_move(self, patience_s: float) -> None:
        eventually(lambda: all(map(self._has_moved, _PROCESSES)), patience_s, self._logs, every_s=0.5)

    def _has_moved(self, process: str) -> bool:
        """Whether each of its pipelines has written something since it was started.

        Of two archives, one may have left nothing to the other.
        """
        with (self._folder / f"{process}.log").open("rb") as log:
            log.seek(self._said[process])
            said = log.read().decode(errors="replace")
        return all(
            re.search(rf"^{name} \((archive\) running|\w+\) \w+, [1-9])", said, re.M)
            for name in _PROCESSES[process]
        )

    def _kill(self, running: subprocess.Popen[bytes], *, alone: bool) -> None:
        if running.poll() is None:
            if alone:  # its JVM finds out by itself, a little later
                running.kill()
            else:
                os.killpg(running.pid, signal.SIGKILL)
        running.wait(60)

    def compare(self, caller: Caller, source: dict[int, str]) -> list[str]:
        """All that is left is done; then everything is there, and once."""
        trouble = []
        for process, running in self._running.items():
            self._kill(running, alone=False)
            if not self._finish(process):
                trouble.append(f"{process} does not end well: {self._log(process)}")
        if trouble:  # what it has not done is not there to be compared
            return trouble
        routed = [payload for payload, _ in Found(caller, ROUTED).records.values()]
        trouble += _differences("the route", Counter(routed), Counter(source.values()))
        loaded = [payload for payload, _ in Found(caller, LOADED).records.values()]
        trouble += _differences("the load", Counter(loaded), Counter(self._lines))
        archived = Counter(
            seq
            for file in DeltaTable(str(self._folder / "lake")).file_uris()
            for seq in pq.ParquetFile(file).read(["seq"])["seq"].to_pylist()
        )
        self.compared = f"{len(routed)} records routed, {len(loaded)} loaded, {archived.total()} archived"
        return trouble + _differences("the table of two archives", archived, Counter(list(source)))

    def _finish(self, process: str) -> bool:
        for _ in range(ATTEMPTS):
            last = self._start(process, "--once")
            try:
                if last.wait(LAST_RUN_S) == 0:
                    return True
            except subprocess.TimeoutExpired:
                self._kill(last, alone=False)
        return False

    def _logs(self) -> str:
        return "\n".join(map(self._log, _PROCESSES))

    def _log(self, process: str) -> str:
        return (self._folder / f"{process}.log").read_text(errors="replace")[-2000:]

    def close(self) -> None:
        for running in self._running.values():
            self._kill(running, alone=False)


def _differences(what: str, found: Counter[object], expected: Counter[object]) -> list[str]:
    if found == expected:
        return []
    missing, more = expected - found, found - expected
    sentence = f"{what} has {found.total()} of {expected.total()}: {missing.total()} are missing, such as "
    return [sentence + f"{list(missing)[:5]}, {more.total()} too many, such as {list(more)[:5]}"]
