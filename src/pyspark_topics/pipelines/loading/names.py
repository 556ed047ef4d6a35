"""Names of files that Spark is to read: to Hadoop, every path is a pattern, and some files are not there."""

import glob
import os
import re

_OF_PATTERNS = re.compile(r"[*?\[\]{},\\]")
_PASSED_OVER = "a name that begins with _ or ., or ends with ._COPYING_"


def literally(path: str) -> str:
    """The pattern that finds this path, and nothing else."""
    return _OF_PATTERNS.sub(r"\\\g<0>", path)


def matching(pattern: str) -> list[str]:
    """Files that a load takes. One that is passed over and named outright is among them: it is refused."""
    found = [name for name in glob.glob(pattern, recursive=True) if os.path.isfile(name)]
    return [name for name in found if not _is_passed_over(name)] if glob.has_magic(pattern) else found


def none_matches(pattern: str) -> str:
    hidden = sorted(filter(os.path.isfile, glob.glob(pattern, recursive=True)))
    but = f" but what Spark passes over, such as {hidden[0]}: {_PASSED_OVER}" if hidden else ""
    return f"no file matches {pattern}{but}"


def why_unreadable(path: str) -> str | None:
    """What keeps Spark from reading a file, if its name does."""
    folder, name = os.path.split(path)
    if _is_passed_over(path):
        return f"Spark passes over {_PASSED_OVER}"
    if ":" in name:
        return "Spark cannot read a file with : in its name"
    if ":" in folder and _OF_PATTERNS.search(path):
        return r"Spark cannot read a file below a folder with : in its name if any of *?[]{},\ is in the path"
    return None


def unreadable(path: str) -> str | None:
    """The same as a sentence about a file of a load."""
    why = why_unreadable(path)
    if why is None:
        return None
    return f"{path} cannot be loaded, {why}; rename it, or leave it out from now on with --skip {path}"


def _is_passed_over(path: str) -> bool:
    """By Spark, without a word: such names are for what its writers keep beside their files."""
    name = os.path.basename(path)
    return (name.startswith("_") and "=" not in name) or name.startswith(".") or name.endswith("._COPYING_")
