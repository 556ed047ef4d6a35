"""A topic: its band, its records, and what can be done to it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Page, expect

from tests.browser.console.conftest import Tab
from tests.browser.console.filled import HOSTILE, records
from tests.http.streaming import RunningApp

Start = Callable[..., RunningApp]
OpenTab = Callable[..., Tab]


def state(app: RunningApp, topic: str) -> Any:
    return app.call("GET", f"/v0/topics/{topic}?touch=false").json


def click_band(page: Page, share: float) -> None:
    band = page.locator(".band")
    box = band.bounding_box()
    assert box is not None
    band.click(position={"x": box["width"] * share, "y": 40})


def test_the_band_shows_why_a_stretch_is_gone(filled: RunningApp, tab: OpenTab) -> None:
    page = tab(filled).go("#/topic/orders")
    told = "The log from seq 1 to 1360: 600 live, 120 deleted, 640 evicted by a cap"
    expect(page.get_by_role("img", name=told)).to_be_visible()
    for kind in ("live", "deleted", "cap"):
        expect(page.locator(f".band rect[data-kind={kind}]").first).to_be_visible()
    for consumer in ("billing", "mailer", "slow"):
        expect(page.locator(".marks").get_by_text(consumer)).to_be_visible()
    click_band(page, 0.1)
    why = page.get_by_role("region", name="The chosen stretch")
    expect(why).to_contain_text("Evicted by a cap")
    expect(why).to_contain_text("cap was reached")
    # Down to single records: the place is in the address.
    page.get_by_role("button", name="Zoom to it").click()
    expect(page).to_have_url(re.compile(r"from=\d+&to=\d+"))
    page.keyboard.press("0")
    page.goto(page.url.split("#")[0] + "#/topic/orders?from=1341&to=1360")
    expect(page.get_by_role("img", name="The log from seq 1341 to 1360: 20 live")).to_be_visible()
    click_band(page, 0.03)
    expect(why.get_by_role("article", name="Record 1341")).to_contain_text('"order"')


def test_the_tail_is_live_stops_and_keeps_what_is_shown(start: Start, tab: OpenTab) -> None:
    app = start()
    app.write("t", *records(3))
    page = tab(app).go("#/topic/t")
    shown = page.get_by_role("log", name="Records").get_by_role("article")
    expect(shown).to_have_count(3)
    app.write("t", *records(2))
    expect(shown).to_have_count(5)
    page.keyboard.press("p")
    expect(page.get_by_text("Stopped")).to_be_visible()
    app.write("t", *records(4))
    page.get_by_label("Node").fill("till-1")
    page.keyboard.press("Enter")
    expect(shown).to_have_count(2)
    page.get_by_label("Node").fill("")
    page.keyboard.press("Enter")
    expect(shown).to_have_count(5)
    page.get_by_role("button", name="Go on").click()
    expect(shown).to_have_count(9)
    page.get_by_label("Text").fill("no record has this")
    page.keyboard.press("Enter")
    expect(shown).to_have_count(0)


# As on a machine that is busy: what a view does once it has been drawn comes late.
DRAWN_LATE = """() => {
    const later = window.setTimeout;
    window.requestAnimationFrame = (work) => later(work, 5000);
    window.setTimeout = (work, ms, ...more) => later(work, Math.max(ms ?? 0, 5000), ...more);
}"""


def test_a_tail_that_was_stopped_takes_nothing_more(start: Start, tab: OpenTab) -> None:
    app = start()
    app.write("t", *records(3))
    page = tab(app).go("#/topic/t")
    shown = page.get_by_role("log", name="Records").get_by_role("article")
    expect(shown).to_have_count(3)
    page.evaluate(DRAWN_LATE)
    page.keyboard.press("p")
    expect(page.get_by_text("Stopped", exact=True)).to_be_visible()
    app.write("t", *records(4))
    page.wait_for_timeout(1000)
    expect(shown).to_have_count(3)


def test_what_is_being_typed_stays_when_the_view_is_drawn_anew(start: Start, tab: OpenTab) -> None:
    app = start()
    app.write("t", *records(3))
    page = tab(app).go("#/topic/t")
    text = page.get_by_label("Text")
    text.fill("no record has this")
    app.write("t", *records(1))
    expect(page.get_by_role("img", name="The log from seq 1 to 4")).to_be_visible()
    expect(text).to_have_value("no record has this")
    page.keyboard.press("Enter")
    expect(page.get_by_role("log", name="Records").get_by_role("article")).to_have_count(0)


def test_deleting_is_looked_at_first_and_the_name_is_typed(start: Start, tab: OpenTab) -> None:
    app = start()
    app.write("t", *records(50))
    page = tab(app).go("#/topic/t?tab=delete")
    page.get_by_label("With the tag").fill("shop:1")
    page.get_by_role("button", name="See what would go").first.click()
    expect(page.get_by_text("This deletes 10 records; 40 records")).to_be_visible()
    assert state(app, "t")["count"] == 50
    act = page.get_by_role("button", name="Delete 10 records")
    expect(act).to_be_disabled()
    page.get_by_label("Type the name of the topic").fill("t")
    act.click()
    expect(page.get_by_text("10 records deleted.")).to_be_visible()
    assert state(app, "t")["count"] == 40


def test_a_configuration_says_what_it_will_cost(start: Start, tab: OpenTab) -> None:
    app = start()
    app.write("t", *records(50))
    page = tab(app).go("#/topic/t?tab=config")
    page.get_by_label("Cap, in records").fill("8")
    page.get_by_role("button", name="See what it will cost").click()
    expect(page.get_by_text("This removes 42 records at once")).to_be_visible()
    assert state(app, "t")["count"] == 50
    page.get_by_label("Type the name of the topic").fill("t")
    page.get_by_role("button", name="Save, and remove 42 records").click()
    expect(page.get_by_text("Saved.")).to_be_visible()
    assert state(app, "t")["config"]["cap_records"] == 8


def test_a_record_is_written(start: Start, tab: OpenTab) -> None:
    app = start()
    page = tab(app).go("#/topic/t")
    page.get_by_label("Data, as JSON").fill('{"large": 12345678901234567890}')
    page.get_by_label("Tag").fill("by:hand")
    page.get_by_role("button", name="Write", exact=True).click()
    expect(page.get_by_role("log", name="Records")).to_contain_text('{"large":12345678901234567890}')


def test_markup_in_data_is_text(filled: RunningApp, tab: OpenTab) -> None:
    page = tab(filled).go("#/topic/hostile")
    page.on("dialog", lambda dialog: dialog.dismiss())
    shown = page.get_by_role("log", name="Records").get_by_role("article")
    shown.get_by_role("button").first.click()
    expect(shown.locator(".record-body")).to_contain_text(HOSTILE)
    expect(shown.locator(".tag")).to_have_text(HOSTILE)
    # In the address, and so in a heading and in an error.
    page.evaluate("(name) => { location.hash = '#/topic/' + encodeURIComponent(name); }", HOSTILE)
    expect(page.get_by_role("heading", level=1)).to_have_text(HOSTILE)
    page.evaluate("(name) => { location.hash = '#/?find=' + encodeURIComponent(name); }", HOSTILE)
    expect(page.get_by_role("heading", name=HOSTILE)).to_be_visible()
    assert page.locator("main img, main script, [onerror], [onload]").count() == 0
