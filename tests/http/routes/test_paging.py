"""Pages: every item once, in order, and only what is shown is looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from topics.core.errors import ApiError
from topics.http.routes.fields import page, start_of_page


@dataclass
class Item:
    name: str


class Asked:
    """As much of an exchange as paging looks at."""

    def __init__(self, **query: str) -> None:
        self._query = query

    def query(self, name: str) -> str | None:
        return self._query.get(name)


def items(*names: str) -> Any:
    return iter([Item(name) for name in names])


def test_following_the_cursor_shows_everything_once() -> None:
    names = ["a", "b", "c", "d", "é"]
    seen: list[str] = []
    query = {"page_size": "2"}
    for _ in range(3):
        asked: Any = Asked(**query)
        rest = items(*(name for name in names if name > start_of_page(asked)))
        body = page(asked, "things", rest, lambda item: {"thing": item.name})
        seen += [entry["thing"] for entry in body["things"]]
        query["cursor"] = body.get("next_cursor", "")
    assert (seen, query["cursor"]) == (names, "")


def test_what_is_not_shown_is_not_looked_at() -> None:
    looked_at: list[str] = []

    def entry(item: Item) -> dict[str, Any]:
        looked_at.append(item.name)
        return {}

    asked: Any = Asked(page_size="1")
    assert "next_cursor" in page(asked, "things", items("a", "b"), entry)
    assert looked_at == ["a"]


def test_nothing_is_a_page_too() -> None:
    asked: Any = Asked()
    assert page(asked, "things", items(), lambda _: {}) == {"things": []}


@pytest.mark.parametrize("cursor", ["x", "!", "YWZ0ZXI6", "YmVmb3JlOmE", "_w"])
def test_a_cursor_of_somebody_else_is_refused(cursor: str) -> None:
    asked: Any = Asked(cursor=cursor)
    with pytest.raises(ApiError, match="not one this server gave out"):
        start_of_page(asked)
