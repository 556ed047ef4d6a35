"""What goes wrong in ways that were foreseen: a sentence for the person who has to act, and no trace.

All of them are in one place, because most are raised in a worker of Spark, and of those nothing but text
arrives here: they are known again by their names.
"""

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from topics.client import TopicsError


class ForUsers(Exception):
    """Its message says what is wrong, and what to do about it."""


class OptionError(ForUsers, ValueError):
    """One sentence about one option."""


class NoJava(ForUsers, RuntimeError):
    """Spark cannot run here."""


class LossRefused(ForUsers):
    """Raised with `loss = "fail"`."""

    def __init__(self, topic: str, gap_from: int, gap_to: int, reason: str) -> None:
        what = f"lost seqs {gap_from} to {gap_to} ({reason}) before they were read"
        behind = gap_to
        if reason == "recreated":
            # What the life that has ended would still have had is not always known.
            unread = "" if gap_from > gap_to else f"; seqs {gap_from} to {gap_to} were not read"
            what, behind = f"is not the one that was read before ({reason}), and begins anew{unread}", 0
        super().__init__(
            f'topic "{topic}" {what}; to go on, '
            'run this again with option loss = "rows" (the range arrives as a row) or loss = "ignore", '
            "or, where no checkpoint says where to go on, start behind it with "
            f'startingOffsets = {{"{topic}": {behind}}}'
        )


class BadRow(ForUsers, ValueError):
    """A row that cannot become a record."""


class NotRepeatable(ForUsers, RuntimeError):
    """Exactly once cannot be promised here, so nothing is written."""


class BatchTooLarge(ForUsers, RuntimeError):
    """More than the server appends at once; nothing was written."""


class PipelineFailed(ForUsers):
    """A pipeline cannot continue; one sentence says why and what to do."""


class SparkDoesNotStart(PipelineFailed):
    """Its cause says what the JVM had to say."""


class TableChanged(PipelineFailed):
    """A table of a route has other columns than the query was made for."""


_FORESEEN = (ForUsers, TopicsError)


def written_for_users(error: BaseException) -> str | None:
    """Return the message of an error of ours, also if Spark wrapped it; None for any other error."""
    if isinstance(error, _FORESEEN):
        return str(error)
    names = [kind.__name__ for base in _FORESEEN for kind in _kinds_of(base)]
    for line in reversed(str(error).splitlines()):
        for name in names:
            _, found, sentence = line.partition(f"{name}: ")
            if found:
                return sentence.strip()
    return None


def _kinds_of(base: type[Exception]) -> Iterator[type[Exception]]:
    for kind in base.__subclasses__():
        yield kind
        yield from _kinds_of(kind)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return what to add to a message about an unknown name; empty if no name is similar."""
    close = get_close_matches(name, list(known), 1)
    return f', did you mean "{close[0]}"' if close else ""


def in_a_line(error: BaseException) -> str:
    """The lines of a store's error that say what is wrong, in one line and without colours."""
    told = str(error).partition("Debug source:")[0]
    lines = [line.replace("\x1b[31m↳\x1b[0m", "").strip() for line in told.splitlines()]
    return " ".join(line for line in lines[:4] if line) or type(error).__name__


_TRACE = "Traceback (most recent call last):"
_RAISED = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Exit|Interrupt)\b")


def has_trace(error: BaseException) -> bool:
    """Return whether Python code raised the error."""
    return _TRACE in str(error)


def explain(error: BaseException) -> str:
    """One line for any other error: the last error in Python inside it, or its beginning."""
    text = str(error).strip()
    inside = text.rpartition(_TRACE)[2].splitlines()
    raised = [line.strip() for line in inside if _RAISED.match(line.strip())]
    if raised and raised[0] != text:
        return raised[0]
    first, *others = text.splitlines() or [type(error).__name__]
    # What the JVM raised stands behind the line that says who called it.
    return others[0].removeprefix(": ") if others and others[0].startswith(": ") else first
