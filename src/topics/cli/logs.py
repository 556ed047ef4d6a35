"""The log on standard error: for people, or one JSON object a line.

A line never spans two, whatever a client sent, and what a request says about itself stands in fields.
"""

import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any

import msgspec

from topics.values import Settings

# What could end a line, hide it, or colour the terminal on which it is read.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_PLAIN = re.compile(r"[\w.:/+=@-]+", re.ASCII)


def set_up_logging(settings: Settings) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if settings.log_format == "json" else HumanLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.log_level.upper())


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
        # JSON escapes what could break a line, except these two, which some readers take for an end.
        text = msgspec.json.encode(line).decode()
        return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029").replace("\x7f", "\\u007f")


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields: dict[str, Any] = getattr(record, "fields", {})
    return fields


def _shown(value: object) -> str:
    text = str(value)
    return text if _PLAIN.fullmatch(text) else '"' + _escaped(text.replace('"', r"\"")) + '"'


def _escaped(text: str) -> str:
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
