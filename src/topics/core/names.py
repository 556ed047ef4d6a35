"""Names: which are valid, and which one was probably meant."""

import re
from collections.abc import Iterable

from topics.core.errors import invalid


def require_utf8(body: bytes) -> None:
    if body.isascii():
        return
    try:
        body.decode()
    except UnicodeDecodeError:
        raise invalid("body is not valid UTF-8") from None


TOPIC_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,254}")
ROUTER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:>-]{0,254}")


def is_topic_name(name: str) -> bool:
    return TOPIC_NAME.fullmatch(name) is not None


def is_router_name(name: str) -> bool:
    return ROUTER_NAME.fullmatch(name) is not None


def require_topic_name(name: str, what: str = "topic") -> None:
    if not is_topic_name(name):
        raise invalid(
            f"{what} name must start with a letter or digit and hold only letters, digits and . _ : - "
            f"(at most 255 characters)"
        )


def require_router_name(name: str) -> None:
    if not is_router_name(name):
        raise invalid(
            "router name must start with a letter or digit and hold only letters, digits and . _ : - > "
            "(at most 255 characters)"
        )


# Beyond this nobody mistyped a name, and comparing takes time that grows with the product of the lengths.
_LONGEST = 80
_ALIKE = 0.6


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The one of `known` that is most like `name`; None when there is none like it."""
    if len(name) > _LONGEST:
        return None
    # Only mistakes pay for this import.
    from difflib import get_close_matches

    by_letters = {_letters(candidate): candidate for candidate in known}
    found = get_close_matches(_letters(name), by_letters, n=1, cutoff=_ALIKE)
    return by_letters[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a sentence that says that there is no such name; empty when none is like it."""
    meant = nearest(name, known)
    return "" if meant is None else f": did you mean {meant}?"


def _letters(name: str) -> str:
    """`fromSeq`, `from-seq` and `FROM_SEQ` are the same name, spelled by different habits."""
    return name.lower().replace("-", "").replace("_", "")
