"""Records as producers send them: data as JSON text, a tag, a node."""

from __future__ import annotations

Draft = tuple[bytes, str | None, str | None]


def body(drafts: list[Draft]) -> bytes:
    return b'{"records":[' + b",".join(map(_line, drafts)) + b"]}"


def _line(draft: Draft) -> bytes:
    data, tag, node = draft
    line = b'{"data":' + data
    if tag is not None:
        line += b',"tag":"%b"' % tag.encode()
    if node is not None:
        line += b',"node":"%b"' % node.encode()
    return line + b"}"
