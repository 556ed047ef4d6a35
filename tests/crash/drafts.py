"""Records as producers send them: data as JSON text, a tag, a node."""

from __future__ import annotations

Draft = tuple[bytes, str | None, str | None]


def body(drafts: list[Draft], key: str | None = None) -> bytes:
    named = b"" if key is None else b',"idempotency_key":"%b"' % key.encode()
    return b'{"records":[%b]%b}' % (b",".join(map(_line, drafts)), named)


def _line(draft: Draft) -> bytes:
    data, tag, node = draft
    line = b'{"data":' + data
    if tag is not None:
        line += b',"tag":"%b"' % tag.encode()
    if node is not None:
        line += b',"node":"%b"' % node.encode()
    return line + b"}"
