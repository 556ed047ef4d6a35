"""JSON is UTF-8. The decoder looks only at the strings it keeps, so whole bodies are checked here."""

from topics.values.errors import invalid


def require_utf8(body: bytes) -> None:
    if body.isascii():
        return
    try:
        body.decode()
    except UnicodeDecodeError:
        raise invalid("body is not valid UTF-8") from None
