"""What may be called what. Names are checked only where they could create something."""

import re

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
