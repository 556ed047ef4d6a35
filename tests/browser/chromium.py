"""A headless browser with a fresh profile, driven through its DevTools socket."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, Message, Ping, Request, TextMessage

from tests.support import eventually

COMMAND = shutil.which("chromium") or shutil.which("chromium-browser")
PATIENCE_S = 60.0
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
)


class Browser:
    def __init__(self, profile: Path) -> None:
        assert COMMAND is not None
        self._process = subprocess.Popen(
            [COMMAND, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._page: Page | None = None
        try:
            self._page = Page(self._page_address(profile / "DevToolsActivePort"))
        except BaseException:
            self.close()
            raise

    def _page_address(self, port_file: Path) -> str:
        def pages() -> list[Any]:
            assert self._process.poll() is None, "the browser ended by itself"
            lines = port_file.read_text().splitlines() if port_file.exists() else []
            if not lines:
                return []
            with urllib.request.urlopen(f"http://127.0.0.1:{lines[0]}/json/list", timeout=10) as answer:
                return [target for target in json.load(answer) if target["type"] == "page"]

        found = eventually(pages, PATIENCE_S, "the browser did not come up", every_s=0.02)
        return str(found[0]["webSocketDebuggerUrl"])

    def open(self, url: str) -> None:
        """Load a page; scripts then run in its origin."""
        assert self._page is not None
        self._page.call("Page.enable")
        self._page.call("Page.navigate", url=url)
        self._page.wait_for("Page.loadEventFired")

    def run(self, script: str) -> Any:
        """The value of an expression, or what its promise resolves to."""
        assert self._page is not None
        answer = self._page.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def close(self) -> None:
        """Let it end its helpers itself; whatever is left after that goes with its session."""
        if self._page is not None:
            self._page.call("Browser.close")
            self._page.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(10)


class Page:
    """One DevTools connection: numbered commands out, answers and events in."""

    def __init__(self, url: str) -> None:
        host, _, target = url.removeprefix("ws://").partition("/")
        name, _, port = host.rpartition(":")
        self._socket = socket.create_connection((name, int(port)), timeout=PATIENCE_S)
        self._protocol = WSConnection(ConnectionType.CLIENT)
        self._socket.sendall(self._protocol.send(Request(host=host, target=f"/{target}")))
        self._number = 0
        self._seen: list[str] = []
        self._text = ""
        self._messages: list[dict[str, Any]] = []
        while not self._accepted():
            pass

    def _accepted(self) -> bool:
        self._protocol.receive_data(self._socket.recv(65536))
        return any(isinstance(event, AcceptConnection) for event in self._protocol.events())

    def close(self) -> None:
        self._socket.close()

    def call(self, method: str, **params: Any) -> Any:
        self._number += 1
        text = json.dumps({"id": self._number, "method": method, "params": params})
        self._socket.sendall(self._protocol.send(Message(data=text)))
        while True:
            message = self._read()
            if message.get("id") == self._number:
                assert "error" not in message, message
                return message["result"]
            self._seen.append(message.get("method", ""))

    def wait_for(self, event: str) -> None:
        while event not in self._seen:
            self._seen.append(self._read().get("method", ""))
        self._seen.remove(event)

    def _read(self) -> dict[str, Any]:
        while not self._messages:
            self._protocol.receive_data(self._socket.recv(1 << 16))
            for event in self._protocol.events():
                if isinstance(event, TextMessage):
                    self._text += event.data
                    if event.message_finished:
                        self._messages.append(json.loads(self._text))
                        self._text = ""
                elif isinstance(event, Ping):
                    self._socket.sendall(self._protocol.send(event.response()))
        return self._messages.pop(0)
