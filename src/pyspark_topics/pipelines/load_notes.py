"""What a load remembers of its files: a note for each, with what shows that a file is still the same.

files found, and the note of each → not loaded yet: a job │ loaded │ changed, grown: refused
"""

import glob
import hashlib
import os
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from pyspark_topics.errors import PipelineFailed
from pyspark_topics.pipelines.delta_table import location
from pyspark_topics.pipelines.files import COPIES, matching, none_matches, why_unreadable
from pyspark_topics.pipelines.state import StatePath, SteppedJob, write_note

# Size and time of a file's last change.
Marks = list[int]
_SKIPPED = "skipped.json"
_BLOCK = 1 << 20


@dataclass
class Loaded:
    """The notes in the folder of a load."""

    state: StatePath
    jobs: list[SteppedJob] = field(init=False)
    skipped: set[str] = field(init=False)

    def __post_init__(self) -> None:
        found: list[StatePath] = list(self.state.glob("set-*.json"))
        read = (SteppedJob.read(path) for path in sorted(found, key=str))
        self.jobs = [job for job in read if job is not None]
        skipped = SteppedJob.read_json(self.state / _SKIPPED)
        self.skipped = set(skipped or ())

    # --- what the user says about files -----------------------------------------------------------------

    def skip(self, paths: Iterable[str]) -> None:
        """From now on, whatever happens to the file; what is committed of it stays."""
        if not self.skipped.issuperset(paths):
            self.skipped.update(paths)
            write_note(self.state / _SKIPPED, sorted(self.skipped))

    def again(self, paths: Iterable[str], about: dict[str, Any], run: str) -> None:
        """Take files as new, once in a run. A file that is already being taken again is continued."""
        for path in paths:
            if not os.path.isfile(path):
                raise PipelineFailed(f"--again names {path}, and there is no such file")
            why = why_unreadable(path)
            if why is not None:
                raise PipelineFailed(f"--again names {path}, and {why}")
            if not self._is_taken(path, run):
                self.new(path, {**about, "again": run})
            if path in self.skipped:
                self.skipped.discard(path)
                write_note(self.state / _SKIPPED, sorted(self.skipped))

    def _is_taken(self, path: str, run: str) -> bool:
        last = self.last(path)
        if last is None or "again" not in last.about:
            return False
        return last.about["again"] == run or (not last.finished and same(last))

    def knows(self, path: str, patterns: Iterable[str]) -> bool:
        """Return whether this load knows the file: it matches a pattern, or has a note."""
        if path in self.skipped or self.last(path) is not None:
            return True
        found = (name for pattern in patterns for name in glob.glob(pattern, recursive=True))
        return os.path.isfile(path) and path in map(os.path.abspath, found)

    # --- files --------------------------------------------------------------------------------------------

    def find(self, patterns: list[str]) -> dict[str, Marks]:
        """Files by absolute path, without those that are left out."""
        found: dict[str, Marks] = {}
        for pattern in patterns:
            matches = matching(pattern)
            if not matches and not any(fnmatch(path, os.path.abspath(pattern)) for path in self.skipped):
                raise PipelineFailed(none_matches(pattern))
            found.update((path, marks(path)) for path in map(os.path.abspath, matches))
        return {path: found[path] for path in sorted(found) if path not in self.skipped}

    def last(self, path: str) -> SteppedJob | None:
        """The newest note about a file."""
        return next((job for job in reversed(self.jobs) if path == job.about["file"]), None)

    def unfinished(self) -> list[SteppedJob]:
        """The newest note of each file, if it is not finished and the file is not left out."""
        newest = {job.about["file"]: job for job in self.jobs if job.about["file"] not in self.skipped}
        return [job for job in self.jobs if not job.finished and newest.get(job.about["file"]) is job]

    def new(self, path: str, about: dict[str, Any], from_byte: int = 0) -> SteppedJob:
        return self._note(self.state / f"set-{len(self.jobs):06}.json", path, about, from_byte)

    def renew(self, job: SteppedJob) -> SteppedJob:
        """The file was changed before anything of it was committed: what it was does not matter."""
        self.jobs.remove(job)
        about = {key: value for key, value in job.about.items() if key not in ("file", "marks", "digest")}
        return self._note(job.path, job.about["file"], about, about.pop("from_byte", 0))

    def _note(self, note: StatePath, path: str, about: dict[str, Any], from_byte: int) -> SteppedJob:
        known = {"file": path, "marks": marks(path), "digest": digest(path), **about}
        job = SteppedJob(note, uuid.uuid4().hex, known | ({"from_byte": from_byte} if from_byte else {}))
        job.note(step=0, at=0)
        self.jobs.append(job)
        return job

    # --- copies of lines that were added ------------------------------------------------------------------

    def drop_copies(self) -> None:
        """Remove copies of lines, without those of jobs that are not finished."""
        copies = self.state / COPIES
        if isinstance(copies, Path) and copies.is_dir():
            folder = location(str(copies))
            folder.remove(folder.files("") - {_copy_of(job) for job in self.unfinished()})


def _copy_of(job: SteppedJob) -> str:
    """The name of the copy of its lines; empty if it reads the file itself."""
    return Path(job.about["file"]).name if job.about.get("from_byte") else ""


def marks(path: str) -> Marks:
    status = os.stat(path)
    return [status.st_size, status.st_mtime_ns]


def same(job: SteppedJob) -> bool:
    """Return whether the file has the content that the job is about."""
    path, noted = job.about["file"], job.about["marks"]
    if not os.path.isfile(path):
        return False
    now = marks(path)
    return bool(noted == now or (noted[0] == now[0] and job.about["digest"] == digest(path)))


def grew(job: SteppedJob) -> bool:
    """Return whether whole lines were added since the file was loaded."""
    path, size = job.about["file"], job.about["marks"][0]
    if os.path.getsize(path) <= size or digest(path, size) != job.about["digest"]:
        return False
    with open(path, "rb") as file:
        file.seek(max(size - 1, 0))
        return size == 0 or b"\n" in file.read(2)


def digest(path: str, size: int | None = None) -> str:
    """Of a file as it is now, or of its first bytes."""
    found = hashlib.blake2b(digest_size=16)
    left = os.path.getsize(path) if size is None else size
    with open(path, "rb") as file:
        while left > 0 and (block := file.read(min(_BLOCK, left))):
            found.update(block)
            left -= len(block)
    return found.hexdigest()
