"""openapi-python-client makes a client of the OpenAPI document: complete, without a warning, and it works."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support import ServerProcess

PROGRAM = Path(sys.executable).with_name("openapi-python-client")
PACKAGE = "generated_topics_client"
PATIENCE_S = 300
# It knows no Arrow; told that these are bytes, it makes those operations as well.
CONFIGURATION = "content_type_overrides:\n  application/vnd.apache.arrow.stream: application/octet-stream\n"


@pytest.fixture(scope="module")
def made(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("python-client")
    (directory / "openapi.json").write_bytes(server.request("GET", "/v0/openapi.json").body)
    (directory / "configuration.yaml").write_text(CONFIGURATION)
    command = [str(PROGRAM), "generate", "--path", "openapi.json", "--config", "configuration.yaml"]
    command += ["--meta", "none", "--output-path", PACKAGE, "--fail-on-warning"]
    # It lays out what it wrote with the ruff that is beside it.
    path = f"{PROGRAM.parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "COLUMNS": "200"}
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    sys.path.insert(0, str(directory))
    yield directory / PACKAGE
    sys.path.remove(str(directory))
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


def part(name: str) -> Any:
    return importlib.import_module(f"{PACKAGE}.{name}" if name else PACKAGE)


@pytest.fixture
def client(made: Path, server: ServerProcess) -> Iterator[Any]:
    with part("").Client(base_url=f"http://{server.address}", timeout=30) as client:
        yield client


def test_it_has_every_operation_and_every_module_of_it_can_be_imported(
    made: Path, server: ServerProcess
) -> None:
    document = server.request("GET", "/v0/openapi.json").json
    told = {one["operationId"] for methods in document["paths"].values() for one in methods.values()}
    modules = [path for path in (made / "api").glob("*/*.py") if path.stem != "__init__"]
    assert len(modules) == len(told)
    for path in (*modules, *(made / "models").glob("*.py")):
        relative = path.relative_to(made).with_suffix("")
        part(".".join(relative.parts))


def test_it_appends_and_reads(client: Any) -> None:
    append, diff, models = part("api.records.append"), part("api.records.diff"), part("models")
    meta = models.RecordBodyMetaType0.from_dict({"trace": "abc", "attempt": 1})
    first = models.RecordBody(data={"sku": "AEROPRESS"}, tag="user:7", meta=meta)
    records = [first, models.RecordBody(data=2)]
    answer = append.sync_detailed("of-python", client=client, body=models.WriteBody(records=records))
    assert answer.status_code == 201
    assert isinstance(answer.parsed, models.Appended)
    assert answer.parsed.last_seq == 2
    page = diff.sync("of-python", client=client, body=models.DiffBody(from_seq=0, include_tags=True))
    assert isinstance(page, models.Diff)
    assert [(record.seq, record.data) for record in page.records] == [(1, {"sku": "AEROPRESS"}), (2, 2)]
    assert page.records[0].tag == "user:7"
    assert page.records[0].meta.to_dict() == {"trace": "abc", "attempt": 1}
    assert page.next_from_seq == 2


def test_its_errors_have_types_also_where_several_share_a_status(client: Any) -> None:
    diff, record, models = part("api.records.diff"), part("api.records.record"), part("models")
    missing = diff.sync_detailed("none", client=client, body=models.DiffBody())
    assert missing.status_code == 404
    assert isinstance(missing.parsed, models.ErrorTopicNotFound)
    assert missing.parsed.error.code == "topic_not_found"
    assert missing.parsed.error.detail.topic == "none"
    part("api.topics.put_topic").sync("empty", client=client, body=models.ConfigBody())
    assert isinstance(record.sync("none", 1, client=client), models.ErrorTopicNotFound)
    assert isinstance(record.sync("empty", 1, client=client), models.ErrorRecordNotFound)


def test_it_sends_and_gets_arrow(client: Any) -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("data", pa.string())])) as writer:
        writer.write_batch(pa.record_batch({"data": ['{"n":1}', '{"n":2}']}))
    file, models = part("types").File(payload=sink.getvalue().to_pybytes()), part("models")
    appended = part("api.bulk.bulk_append").sync("arrows", client=client, body=file)
    assert isinstance(appended, models.BulkAppended)
    scanned = part("api.bulk.scan").sync("arrows", client=client, body=models.ScanBody())
    table = pa.ipc.open_stream(scanned.payload.read()).read_all()
    assert table.column("data").to_pylist() == ['{"n":1}', '{"n":2}']
