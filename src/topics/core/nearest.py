"""The name that was probably meant, for one that does not exist."""

from collections.abc import Iterable

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
