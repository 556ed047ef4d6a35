"""Every view: there, reached by keys, on a phone, in the dark, and without anything that axe would find."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.console.conftest import Tab
from tests.browser.console.filled import HOSTILE
from tests.http.streaming import RunningApp

OpenTab = Callable[..., Tab]
# Address, and what tells that it is complete.
VIEWS = {
    "#/": "Needs attention",
    "#/topic/orders": "Evicted by a cap",
    "#/topic/orders?tab=readers": "billing",
    "#/topic/orders?tab=write": "Data, as JSON",
    "#/topic/orders?tab=delete": "Delete the topic",
    "#/topic/orders?tab=config": "Cap, in records",
    "#/topic/jobs?tab=queue": "worker-7",
    "#/topic/jobs.dead?tab=queue": "Send dead letters back",
    "#/topic/nothing-here": "There is no topic of this name",
    "#/queues": "jobs",
    "#/routers": "orders-eu",
    "#/cursors": "billing",
    "#/system": "TOPICS_MAX_TOPICS",
    "#/nowhere": "There is no such view",
}
PHONE = {"width": 390, "height": 844}
SHOTS = Path(__file__).parents[3] / "build" / "screenshots"


# Rows of a list are all alike: the first few will do.
AXE = """
axe.run(
  {include: [["html"]], exclude: [[".records > :nth-child(n+5)"], ["tbody tr:nth-child(n+5)"]]},
  {resultTypes: ["violations"]},
)
"""


def findings(page: Page) -> list[Any]:
    found = page.evaluate(AXE)
    return [
        (one["id"], [node["html"][:160] + " " + node["failureSummary"] for node in one["nodes"][:3]])
        for one in found["violations"]
    ]


def visit_all(page: Page, name: str, look: Callable[[], Any]) -> dict[str, Any]:
    SHOTS.mkdir(parents=True, exist_ok=True)
    wrong: dict[str, Any] = {}
    for address, text in VIEWS.items():
        page.evaluate("(address) => { location.hash = address; }", address)
        expect(page.locator("main")).to_contain_text(text)
        expect(page.locator("h1")).to_have_count(1)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{address} is too wide"
        shot = "".join(letter if letter.isalnum() else "-" for letter in address).strip("-") or "overview"
        page.screenshot(path=SHOTS / f"{shot}-{name}.png")
        if found := look():
            wrong[address] = found
    return wrong


def test_every_view_is_for_everyone(filled: RunningApp, tab: OpenTab, node_modules: Path) -> None:
    # Axe is put into the page by the test, which the page itself would not allow.
    page = tab(filled, color_scheme="light", bypass_csp=True).go()
    page.evaluate((node_modules / "axe-core" / "axe.min.js").read_text())
    wrong = visit_all(page, "light", lambda: findings(page))
    assert not wrong, wrong


def test_every_view_fits_a_phone(filled: RunningApp, tab: OpenTab) -> None:
    page = tab(filled, color_scheme="dark", viewport=PHONE).go()
    assert not visit_all(page, "phone", lambda: None)


@pytest.mark.slow
@pytest.mark.parametrize("viewport", [PHONE, {"width": 1280, "height": 900}], ids=["phone", "desk"])
def test_every_view_is_for_everyone_in_the_dark(
    filled: RunningApp, tab: OpenTab, node_modules: Path, viewport: dict[str, int]
) -> None:
    page = tab(filled, color_scheme="dark", viewport=viewport, bypass_csp=True).go()
    page.evaluate((node_modules / "axe-core" / "axe.min.js").read_text())
    wrong = visit_all(page, "dark", lambda: findings(page))
    assert not wrong, wrong


def test_keys_reach_everything(filled: RunningApp, tab: OpenTab) -> None:
    page = tab(filled).go()
    expect(page.get_by_role("rowheader", name="orders.eu")).to_be_visible()
    for key, title in (("q", "Queues"), ("r", "Routers"), ("c", "Cursors and pipelines"), ("s", "System")):
        page.keyboard.press("g")
        page.keyboard.press(key)
        expect(page.get_by_role("heading", level=1, name=title)).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("find a topic")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("/")
    page.keyboard.type("kept")
    page.keyboard.press("Enter")
    expect(page.get_by_role("rowheader", name="kept")).to_be_visible()
    expect(page.get_by_role("rowheader")).to_have_count(1)
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("kept")
    expect(page.get_by_role("link", name="Write")).to_be_visible()
    page.keyboard.press("3")
    expect(page.get_by_role("button", name="Write", exact=True)).to_be_visible()
    for scheme in ("light", "dark"):
        page.keyboard.press("t")
        assert page.evaluate("document.documentElement.dataset.theme") == scheme


def test_dead_letters_go_back(start: Callable[..., RunningApp], tab: OpenTab) -> None:
    app = start()
    app.call("PUT", "/v0/topics/jobs", {"type": "queue", "max_deliveries": 1, "dead_letter": "dead"})
    app.write("jobs", 1, 2, 3)
    for _ in range(2):
        claimed = app.call("POST", "/v0/topics/jobs/claim", {"node": "w", "max": 3}).json["claimed"]
        nack = {"node": "w", "seqs": [job["$seq"] for job in claimed]}
        app.call("POST", "/v0/topics/jobs/nack", nack)
    page = tab(app).go("#/topic/dead?tab=queue")
    page.get_by_role("button", name="Redrive").click()
    expect(page.get_by_text("3 jobs moved back")).to_be_visible()
    assert app.call("GET", "/v0/topics/jobs").json["queue"]["ready"] == 3


def test_pipelines_say_how_they_fare(filled: RunningApp, tab: OpenTab) -> None:
    page = tab(filled).go("#/cursors")
    table = page.get_by_role("table", name="Pipelines")
    expect(table.get_by_role("row", name="lake archive failed")).to_contain_text(f"no space left {HOSTILE}")
    expect(table.get_by_role("row", name="by-day route running")).to_be_visible()
    page.goto(page.url.split("#")[0] + "#/cursors?consumer=lake")
    expect(table.get_by_role("row")).to_have_count(2)
