"""Small scripts that stand in for programs which Spark starts. Written once per user, and kept."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path


def kept_script(environment: Mapping[str, str], name: str, text: str) -> Path | None:
    """Where the script is: below the folder that the user has for such things, or a fresh one, or nowhere."""
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
    yield Path(tempfile.mkdtemp(prefix="topics-"))


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
