"""Named cursors over the wire."""

from __future__ import annotations

import pytest

from tests.http.streaming import RunningApp
from topics.http.routes import cursors as cursor_routes


def test_a_page_ends_when_enough_was_looked_at(app: RunningApp, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if it is short then, or empty: the rest is behind its cursor, and nothing is left out."""
    monkeypatch.setattr(cursor_routes, "MOST_LOOKED_AT", 3)
    names = [f"t{number:02}" for number in range(12)]
    for name in names:
        app.call("PUT", f"/v0/topics/{name}", {})
        consumer = "rare" if name in ("t04", "t11") else "common"
        app.call("PUT", f"/v0/topics/{name}/cursors/{consumer}", {"seq": 0})
    for query, expected in (
        ("consumer=rare", ["t04", "t11"]),
        ("consumer=common", [name for name in names if name not in ("t04", "t11")]),
        ("prefix=t1", ["t10", "t11"]),
        ("", names),
    ):
        found, cursor, pages = [], "", 0
        while True:
            page = app.call("GET", f"/v0/cursors?{query}&page_size=2&cursor={cursor}").json
            found += [one["topic"] for one in page["cursors"]]
            pages += 1
            if "next_cursor" not in page:
                break
            cursor = page["next_cursor"]
        assert found == expected
        assert pages <= len(names)
