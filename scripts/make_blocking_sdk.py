"""Writes the blocking modules of the SDK from the asyncio ones: the same text, without `async` and `await`.

python scripts/make_blocking_sdk.py            writes src/topics/client/{sync,topic,jobs}.py
python scripts/make_blocking_sdk.py --check    fails when one of them is not what it would write

A block under `if IS_ASYNC:` and a definition whose name begins with `_aio_` exist on asyncio only.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

CLIENT = Path(__file__).resolve().parents[1] / "src" / "topics" / "client"
# Each asyncio module, and the blocking one that is made from it.
MODULES = {"aio": "sync", "aio_topic": "topic", "aio_jobs": "jobs"}
NAMES = {
    **MODULES,
    "async_io": "blocking",
    "AsyncIO": "Blocking",
    "BackgroundTask": "BackgroundThread",
    "run_in_tasks": "run_in_threads",
    **{f"Async{name}": name for name in ("Topics", "Topic", "Writer", "Queue", "Job", "Worker", "Iterator")},
    "asynccontextmanager": "contextmanager",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "asyncio": "threading",  # for its locks
}
# In docstrings and comments, where a name is not enough.
PHRASES = {
    "on asyncio": "that block",
    "async with": "with",
    "Several tasks": "Threads",
}
HEAD = "# Generated from {source} by scripts/make_blocking_sdk.py: do not edit.\n"


def blocking_text(source: str) -> str:
    """The text of a blocking module, from the text of the asyncio one."""
    text = _renamed(_without_asyncio(source))
    # Imports that are left over, and one `for` that reads better as `yield from`.
    fixes = ["check", "--fix-only", "--unsafe-fixes", "--quiet", "--select", "I,F401,UP028"]
    for command in (fixes, ["format", "--quiet"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(CLIENT / "topic.py"), "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout
    return text


def _without_asyncio(source: str) -> str:
    """Leave out what exists on asyncio only."""
    lines = source.splitlines(keepends=True)
    for node in ast.walk(ast.parse(source)):
        is_named = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("_aio_")
        is_block = isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "IS_ASYNC"
        if is_named or is_block:
            assert isinstance(node, ast.stmt)
            assert not getattr(node, "orelse", None), "a block under IS_ASYNC has no else"
            assert node.end_lineno is not None
            for index in range(node.lineno - 1, node.end_lineno):
                lines[index] = ""
    return "".join(lines)


def _renamed(source: str) -> str:
    """Drop `async` and `await`, and replace names in code and in prose."""
    pieces: list[str] = []
    lines = source.splitlines(keepends=True)
    row, column = 1, 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        begin, end = token.start, token.end
        # The blanks and line breaks in front of the token.
        while row < begin[0]:
            pieces.append(lines[row - 1][column:])
            row, column = row + 1, 0
        pieces.append(lines[row - 1][column : begin[1]] if row <= len(lines) else "")
        row, column = end
        if token.type == tokenize.NAME and token.string in ("async", "await"):
            column += 1  # and the blank behind it
        elif token.type == tokenize.NAME:
            pieces.append(NAMES.get(token.string, token.string))
        elif token.type in (tokenize.STRING, tokenize.COMMENT):
            pieces.append(_prose(token.string))
        elif token.type not in (tokenize.INDENT, tokenize.DEDENT):
            pieces.append(token.string)
        else:
            pieces.append(token.string if token.type == tokenize.INDENT else "")
    return "".join(pieces)


def _prose(text: str) -> str:
    for phrase, replacement in PHRASES.items():
        text = text.replace(phrase, replacement)
    return re.sub(r"\w+", lambda word: NAMES.get(word[0], word[0]), text)


def generated() -> dict[Path, str]:
    """The blocking modules, each with the text that it should have."""
    made = {}
    for source, target in MODULES.items():
        text = (CLIENT / f"{source}.py").read_text()
        tree = ast.parse(text)
        summary = (ast.get_docstring(tree) or "").partition("\n")[0]
        body = "".join(text.splitlines(keepends=True)[tree.body[0].end_lineno :])
        text = f'"""{summary}"""\n{body}'
        made[CLIENT / f"{target}.py"] = HEAD.format(source=f"{source}.py") + blocking_text(text)
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only compare")
    is_check = parser.parse_args().check
    stale = [path for path, text in generated().items() if not path.exists() or path.read_text() != text]
    for path in stale:
        print(f"{path.name} is not what {Path(__file__).name} makes")
        if not is_check:
            path.write_text(generated()[path])
    return 1 if is_check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
