"""The first screen: empty, filled, in the dark, on a phone, without a key."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import expect

from tests.browser.console.conftest import Tab
from tests.browser.console.filled import HOSTILE
from tests.http.streaming import RunningApp

Start = Callable[..., RunningApp]
OpenTab = Callable[..., Tab]


def test_an_empty_server_shows_how_to_begin(start: Start, tab: OpenTab) -> None:
    page = tab(start()).go()
    expect(page.get_by_role("heading", name="Nothing has been written yet")).to_be_visible()
    assert page.locator("pre").count() == 3
    page.get_by_role("button", name="Write a first record").click()
    page.wait_for_url("**/#/topic/hello")
    page.go_back()
    expect(page.get_by_role("rowheader", name="hello")).to_be_visible()


def test_loss_is_seen_and_told_apart_from_deletion(filled: RunningApp, tab: OpenTab) -> None:
    page = tab(filled).go()
    row = page.get_by_role("row", name="orders disk")
    lost, deleted = row.locator(".is-lost"), row.locator(".is-deleted")
    expect(lost).to_have_text("640")
    expect(deleted).to_have_text("120")
    fills = [one.locator("rect").get_attribute("fill") for one in (lost, deleted)]
    assert fills == ["url(#fill-lost)", "url(#fill-deleted)"]
    attention = page.locator(".attention")
    for text in (
        "orders told 1 time that",
        "slow has lost records of orders from seq 101 on",
        "stuck waits for room in small",
        f": no space left {HOSTILE}",
        "jobs.dead has 4 jobs that jobs gave up",
    ):
        expect(attention.get_by_text(text)).to_be_visible()


def test_a_key_is_asked_for_and_kept_for_the_tab_only(start: Start, tab: OpenTab) -> None:
    app = start(api_keys="the-secret:read")
    one = tab(app)
    page = one.go()
    page.get_by_label("Key", exact=True).fill("wrong")
    page.get_by_role("button", name="Use this key").click()
    expect(page.get_by_role("alert")).to_contain_text("does not know this key")
    page.get_by_label("Key", exact=True).fill("the-secret")
    page.get_by_role("button", name="Use this key").click()
    expect(page.get_by_role("status")).to_contain_text("read")
    # A key that may only read is not offered to write.
    expect(page.get_by_role("heading", name="Nothing has been written yet")).to_be_visible()
    assert page.get_by_role("button", name="Write a first record").count() == 0
    assert "the-secret" not in page.url
    assert page.evaluate("JSON.stringify([{...localStorage}, document.cookie])").find("the-secret") < 0
    page.reload()
    expect(page.get_by_role("status")).to_contain_text("read")
    other = page.context.new_page()
    other.goto(one.origin)
    expect(other.get_by_role("heading", name="This server asks for a key")).to_be_visible()


def test_behind_a_path_of_a_proxy_it_works_as_it_does_at_the_root(start: Start, tab: OpenTab) -> None:
    page = tab(start(base_path="/shop/topics")).go("shop/topics")
    page.wait_for_url("**/shop/topics/**")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    expect(page.locator("pre").first).to_contain_text("/shop/topics")
    page.get_by_role("button", name="Write a first record").click()
    page.wait_for_url("**/shop/topics/#/topic/hello")
    # It comes by the tail.
    expect(page.get_by_role("log")).to_contain_text("the first record")
    assert asked
    assert [url for url in asked if "/shop/topics/" not in url] == []
