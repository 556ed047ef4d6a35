"""The log, on standard error or in a file: for people, or one JSON object a line.

A line never spans two, whatever a client sent, and what a request says about itself stands in fields.
"""

import json
import logging
import re
import sys
from datetime import UTC, datetime
from io import FileIO
from typing import Any

import msgspec

from topics.core import ConfigError, Settings

log = logging.getLogger("topics")

# What could end a line, hide it, or colour the terminal on which it is read.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_PLAIN = re.compile(r"[\w.:/+=@-]+", re.ASCII)


def set_up_logging(settings: Settings) -> "LogFile | None":
    """Returns the file, if that is where the log goes."""
    file = None if settings.log_file is None else LogFile(settings.log_file)
    handler = file or logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if settings.log_format == "json" else HumanLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.log_level.upper())
    return file


class LogFile(logging.Handler):
    """A file that may be moved away while it is written to: opened again, lines go into a new one."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        self._file = self._open()
        # It is told once that lines are lost, not for each.
        self._is_losing = False

    def _open(self) -> FileIO:
        try:
            # Without a buffer: lines that the disk has no room for must not pile up in memory.
            return open(self._path, "ab", buffering=0)
        except OSError as error:
            raise ConfigError(f"TOPICS_LOG_FILE: cannot write {self._path}: {error.strerror}") from None

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._file.write(f"{self.format(record)}\n".encode("utf-8", "backslashreplace"))
        except Exception:
            self.handleError(record)

    def reopen(self) -> None:
        try:
            fresh = self._open()
        except ConfigError as error:
            log.error("%s; the log goes on where it was", error)
            return
        self.acquire()
        try:
            before, self._file = self._file, fresh
        finally:
            self.release()
        self._is_losing = False
        before.close()

    def close(self) -> None:
        self._file.close()
        super().close()

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """A full disk, above all. The server goes on."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
        elif not self._is_losing:
            self._is_losing = True
            print(f"topics: the log cannot be written: {error.strerror}", file=sys.stderr)


class HumanLines(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """The line itself; a traceback follows on lines of its own."""
        fields = "".join(f" {name}={_shown(value)}" for name, value in _fields(record).items())
        return _escaped(super().formatMessage(record)) + fields


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        try:
            text = msgspec.json.encode(line).decode()
        except UnicodeEncodeError:  # a path that is not UTF-8
            text = json.dumps(line, default=str)
        # JSON escapes what could break a line, except these two, which some readers take for an end.
        return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029").replace("\x7f", "\\u007f")


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields: dict[str, Any] = getattr(record, "fields", {})
    return fields


def _shown(value: object) -> str:
    text = str(value)
    return text if _PLAIN.fullmatch(text) else '"' + _escaped(text.replace('"', r"\"")) + '"'


def _escaped(text: str) -> str:
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
