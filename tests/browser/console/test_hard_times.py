"""The console while the server recovers, on a full disk, without an answer; and a page of another origin."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.browser.console.conftest import PATIENCE_MS, Tab
from tests.http.streaming import RunningApp
from topics.http.app import Application

Start = Callable[..., RunningApp]
OpenTab = Callable[..., Tab]


class NotYetRecovered(RunningApp):
    """It listens, and has read a quarter of its journal."""

    async def begin(self) -> None:
        self.app = Application(self._settings)
        self.app.node.progress = 0.25
        await self.app.server.start()

    def recover(self) -> None:
        self.wait(self.app.recover())


def test_a_page_that_waits_for_recovery_goes_on_by_itself(tmp_path: Path, tab: OpenTab) -> None:
    app = NotYetRecovered(tmp_path / "slow")
    try:
        page = tab(app).go()
        expect(page.get_by_role("heading", name="The server is recovering")).to_be_visible()
        expect(page.get_by_text("25 %")).to_be_visible()
        app.recover()
        expect(page.get_by_role("heading", name="Nothing has been written yet")).to_be_visible()
    finally:
        app.stop()


def test_a_full_disk_is_told_and_what_is_there_is_shown(start: Start, tab: OpenTab) -> None:
    app = start()
    app.write("t", 1, 2, 3)
    engine = app.app.node.engine

    def fill_up() -> None:
        engine.reserve.finds_room = lambda: False  # type: ignore[method-assign]
        engine.queue.refusals.note_full()

    app.inside(fill_up)
    page = tab(app).go()
    expect(page.get_by_role("status", name="Server")).to_contain_text("Writes off: the disk is full")
    expect(page.get_by_role("rowheader", name="t")).to_be_visible()
    page.evaluate("location.hash = '#/topic/t?tab=write'")
    page.get_by_role("button", name="Write", exact=True).click()
    expect(page.get_by_role("alert")).to_be_visible()
    app.inside(engine.resume_writes)
    expect(page.get_by_role("status", name="Server")).to_contain_text("Writes on")


def test_a_server_that_goes_is_told_and_what_was_shown_stays(tmp_path: Path, tab: OpenTab) -> None:
    app = RunningApp(tmp_path / "going")
    app.write("t", 1)
    page = tab(app).go()
    expect(page.get_by_role("rowheader", name="t")).to_be_visible()
    app.stop()
    expect(page.get_by_role("status", name="Server")).to_contain_text("does not answer")
    expect(page.get_by_role("rowheader", name="t")).to_be_visible()


def test_what_a_key_may_not_do_is_not_offered(start: Start, tab: OpenTab) -> None:
    app = start(api_keys="everything,reader:read:shop.")
    key = {"Authorization": "Bearer everything"}
    for name in ("shop.orders", "hidden"):
        app.call("POST", f"/v0/topics/{name}", {"records": [{"data": 1}]}, **key)
    page = tab(app).go()
    page.get_by_label("Key", exact=True).fill("reader")
    page.get_by_role("button", name="Use this key").click()
    page.get_by_role("link", name="shop.orders").click()
    parts = page.get_by_role("navigation", name="Parts of the topic")
    expect(parts.get_by_role("link")).to_have_text(["Records", "Cursors", "Configuration"])
    expect(page.get_by_role("log", name="Records").get_by_role("article")).to_have_count(1)
    parts.get_by_role("link", name="Configuration").click()
    expect(page.get_by_label("Cap, in records")).to_be_disabled()
    page.evaluate("location.hash = '#/system'")
    expect(page.get_by_text("Records written, per second")).to_be_visible()
    assert page.get_by_text("Settings in force").count() == 0
    page.evaluate("location.hash = '#/topic/hidden'")
    expect(page.get_by_role("alert")).to_be_visible()


# Every way in which a page can ask another origin for something; what comes back that it can read.
ATTACK = """
async (target) => {
  const topic = target + "/v0/topics/t";
  const json = {"Content-Type": "application/json"};
  const body = JSON.stringify({records: [{data: "evil"}]});
  const read = [];
  const attempt = async (name, url, options) => {
    try {
      const answer = await fetch(url, options);
      const text = await answer.text();
      if (text) read.push([name, text]);
    } catch {}
  };
  for (const mode of ["cors", "no-cors"]) {
    await attempt("read " + mode, target + "/v0/topics", {mode});
    await attempt("console " + mode, target + "/", {mode});
    await attempt("tail " + mode, target + "/v0/tail?topic=t@0", {mode, signal: AbortSignal.timeout(500)});
    for (const headers of [json, {"Content-Type": "text/plain"}, {}]) {
      await attempt("append " + mode, topic, {mode, method: "POST", headers, body});
      const below = '{"before_seq": 9}';
      await attempt("delete " + mode, topic + "/delete", {mode, method: "POST", headers, body: below});
      await attempt("purge " + mode, target + "/v0/admin/purge", {mode, method: "POST", headers, body: "{}"});
    }
    await attempt("purge bare " + mode, target + "/v0/admin/purge", {mode, method: "POST"});
    await attempt("put " + mode, topic, {mode, method: "PUT", headers: json, body: '{"cap_records": 1}'});
    await attempt("drop " + mode, topic, {mode, method: "DELETE"});
    await attempt("beacon " + mode, topic, {mode, method: "POST", keepalive: true, body});
  }
  navigator.sendBeacon(topic, body);
  const heard = (source, events) => new Promise((resolve) => {
    for (const event of events) source.addEventListener(event, () => resolve(event));
    setTimeout(() => resolve("nothing"), 3000);
  });
  const stream = new EventSource(target + "/v0/tail?topic=t@0");
  const streamed = await heard(stream, ["record", "error"]);
  stream.close();
  const socket = new WebSocket(target.replace("http", "ws") + "/v0/ws");
  const publish = JSON.stringify({op: "publish", topic: "t", records: [{data: "evil"}]});
  socket.addEventListener("open", () => socket.send(publish));
  const spoken = await heard(socket, ["message", "error"]);
  socket.close();
  const frame = document.createElement("iframe");
  frame.src = target + "/";
  document.body.append(frame);
  await new Promise((resolve) => { frame.onload = resolve; setTimeout(resolve, 3000); });
  let framed = "";
  try { framed = frame.contentDocument.body.textContent; } catch {}
  return {read, streamed, spoken, framed};
}
"""


def test_a_page_of_another_origin_reads_and_changes_nothing(start: Start, browser: Browser) -> None:
    app, other = start(), start()
    app.write("t", "secret")
    page = browser.new_context().new_page()
    page.set_default_timeout(PATIENCE_MS)
    try:
        page.goto("http://{}:{}/v0/health".format(*other.address))
        found = page.evaluate(ATTACK, "http://{}:{}".format(*app.address))
    finally:
        page.context.close()
    assert found == {"read": [], "streamed": "error", "spoken": "error", "framed": ""}
    state = app.call("GET", "/v0/topics/t").json
    assert (state["head_seq"], state["count"], state["config"]["cap_records"]) == (1, 1, 0)
    assert app.app.node.purges.find("1") is None
