"""docs/api.md and docs/bulk.md: every example prints what they say, and their tables leave nothing out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scripts.api_reference import page

from tests.docs.examples import ROOT, assert_shown, check_answer, examples, named, run_bash, table
from tests.http.streaming import RunningApp, SocketClient
from tests.support import ServerProcess
from topics.core.config import TopicConfig
from topics.core.errors import STATUS_BY_CODE
from topics.http.routing import Route

API = ROOT / "docs" / "api.md"
BULK = ROOT / "docs" / "bulk.md"


# --- examples -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [API, BULK], ids=named)
def test_examples_in_order(path: Path, tmp_path: Path) -> None:
    setup, *rest = examples(path, "bash")
    assert rest
    # Fresh, because the answers shown have seqs and totals in them.
    server = ServerProcess(tmp_path).start()
    try:
        for example in rest:
            check_answer(example, run_bash(setup.code + example.code, server))
    finally:
        server.stop()


def test_the_conversation_over_a_websocket(server: ServerProcess) -> None:
    host, _, port = server.address.rpartition(":")
    client = SocketClient((host, int(port)))
    lines = [line for e in examples(API, "text") for line in e.code.splitlines() if line[:2] in ("> ", "< ")]
    assert lines
    for line in lines:
        if line.startswith(">"):
            client.send_text(line[2:])
        else:
            assert_shown(json.loads(line[2:]), client.read())
    client.close()


# --- tables ---------------------------------------------------------------------------------------------


@pytest.fixture
def routes(tmp_path: Path) -> Iterator[list[Route]]:
    running = RunningApp(tmp_path)
    yield list(running.app.server.routes)
    running.stop()


def plain(cell: str) -> str:
    return cell.strip("`")


def test_the_table_of_routes_is_current(routes: list[Route]) -> None:
    assert API.read_text() == page(API.read_text(), routes), "run python scripts/api_reference.py"


def test_bulk_names_its_routes() -> None:
    text = BULK.read_text().replace("…/", "/v0/topics/:topic/")
    bulk = [row for row in table(API, "Method") if "bulk.md" in row[3]]
    assert bulk
    for method, path, _, _ in bulk:
        assert f"{method} {plain(path)}" in text


@pytest.mark.parametrize("path", sorted(ROOT.glob("docs/*.md")), ids=named)
def test_no_document_names_a_metric_that_is_not_there(path: Path, server: ServerProcess) -> None:
    named = set(re.findall(r"`(topics_[a-z_]+)`", path.read_text()))
    exposed = set(re.findall(r"^# TYPE (\S+)", server.request("GET", "/v0/metrics").text, re.M))
    known = exposed | set(server.request("GET", "/v0/metrics", headers={"Accept": "application/json"}).json)
    # A fixture of pytest, which is called so as well.
    assert named - {"topics_server"} <= known


def test_every_error_is_documented() -> None:
    assert {plain(code): int(status) for status, code, *_ in table(API, "Status")} == STATUS_BY_CODE


def test_every_field_of_a_config_is_documented_with_its_default() -> None:
    rows = table(API, "Field")
    documented: dict[str, Any] = {plain(name): json.loads(plain(default)) for name, default, _ in rows}
    defaults = TopicConfig()
    assert documented == {name: getattr(defaults, name) for name in TopicConfig.__struct_fields__}


@pytest.mark.parametrize("path", sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]), ids=named)
def test_links_between_documents_lead_somewhere(path: Path) -> None:
    for target, anchor in re.findall(r"\]\(([\w./-]*)(?:#([\w-]+))?\)", path.read_text()):
        linked = (path.parent / target).resolve() if target else path
        assert linked.exists(), target
        if anchor:
            titles = re.findall(r"^#+ (.+)$", linked.read_text(), re.M)
            assert anchor in {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}
