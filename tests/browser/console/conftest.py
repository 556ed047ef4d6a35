"""One browser and one filled server for all tests of the console; each test has a tab of its own."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from tests.browser.console.filled import fill
from tests.http.streaming import RunningApp
from tests.support import npm

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ROOT = Path(__file__).parents[3]
SOURCES = ROOT / "console"
PATIENCE_MS = 60_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("needs chromium")
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningApp]:
    """A server that has something of everything."""
    app = RunningApp(tmp_path_factory.mktemp("filled"))
    fill(app)
    yield app
    app.stop()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., RunningApp]]:
    apps: list[RunningApp] = []

    def begin(**settings: Any) -> RunningApp:
        apps.append(RunningApp(tmp_path / f"data-{len(apps)}", **settings))
        return apps[-1]

    yield begin
    for app in apps:
        app.stop()


class Tab:
    """A tab on the console of one server. What its scripts complain about fails the test."""

    def __init__(self, page: Page, app: RunningApp) -> None:
        self.page = page
        self.origin = "http://{}:{}".format(*app.address)
        self.problems: list[str] = []
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", self._note)
        page.on("pageerror", lambda error: self.problems.append(str(error)))

    def _note(self, message: ConsoleMessage) -> None:
        # An answer that is no success is told by the browser by itself; the page shows it.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.problems.append(message.text)

    def go(self, address: str = "") -> Page:
        self.page.goto(f"{self.origin}/{address}")
        return self.page


@pytest.fixture
def tab(browser: Browser) -> Iterator[Callable[..., Tab]]:
    """`tab(app, **options of a browser's context)`."""
    tabs: list[Tab] = []

    def begin(app: RunningApp, **options: Any) -> Tab:
        page = browser.new_context(**options).new_page()
        tabs.append(Tab(page, app))
        return tabs[-1]

    yield begin
    for one in tabs:
        one.page.context.close()
        assert not one.problems


@pytest.fixture(scope="package")
def node_modules() -> Path:
    """What the console is built with, installed if it is not there yet."""
    return npm.node_modules(SOURCES)
