"""`load`: files into a topic, each once, whatever is interrupted."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyspark_topics.pipelines import Load, load
from tests.spark.pipelines.running import Pipelines
from tests.spark.server import Server

# The first query of a session takes long where others use the machine, too.
pytestmark = pytest.mark.timeout(300)


def test_lines_of_json_arrive_as_they_stand(
    server: Server, topic: str, pipelines: Pipelines, tmp_path: Path
) -> None:
    (tmp_path / "a.jsonl").write_text('{"z": 1e2, "a": null}\n\n[1, 2.50]\n"text"\n')
    pipelines.run(Load(files=[str(tmp_path / "*.jsonl")], into=topic))
    assert server.data(topic) == [{"z": 100.0, "a": None}, [1, 2.5], "text"]


def test_csv_and_parquet_become_objects(
    server: Server, topic: str, pipelines: Pipelines, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("sku,qty,tag\nx,1,user:7\ny,2,user:9\n")
    pipelines.run(Load(files=[str(tmp_path / "a.csv")], into=topic), "csv")
    pq.write_table(pa.table({"sku": ["z"], "qty": [3]}), tmp_path / "b.parquet")
    select = ["struct(sku, qty) AS data", "concat('sku:', sku) AS tag"]
    pipelines.run(Load(files=[str(tmp_path / "b.parquet")], into=topic, select=select), "parquet")
    records, _ = server.diff(topic)
    assert [(record["data"], record["$tag"]) for record in records] == [
        ({"sku": "x", "qty": 1}, "user:7"),
        ({"sku": "y", "qty": 2}, "user:9"),
        ({"sku": "z", "qty": 3}, "sku:z"),
    ]


def test_csv_as_others_write_it(server: Server, topic: str, pipelines: Pipelines, tmp_path: Path) -> None:
    """Quotes doubled inside quotes, dots in names, and a column that is called like an idea of ours."""
    (tmp_path / "a.csv").write_text('topic,unit.price,note\nsports,1.5,"a ""b"", c"\n')
    pipelines.run(Load(files=[str(tmp_path / "a.csv")], into=topic))
    assert server.data(topic) == [{"topic": "sports", "unit.price": 1.5, "note": 'a "b", c'}]


def test_a_tag_that_is_no_text_is_refused(
    server: Server, topic: str, pipelines: Pipelines, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("sku,tag\nx,7\n")
    message = pipelines.failure(Load(files=[str(tmp_path / "a.csv")], into=topic))
    assert message == 'the sink takes a string as column "tag", and this is int'


def test_a_load_that_was_killed_between_commit_and_note_goes_on(
    server: Server, topic: str, pipelines: Pipelines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "SPLIT_BYTES", 2_000)
    monkeypatch.setattr(load, "COMMIT_BYTES", 1_000)
    (tmp_path / "a.json").write_text("".join(f'{{"n":{n}}}\n' for n in range(1000)))
    settings = Load(files=[str(tmp_path / "a.json")], into=topic)
    noted = load.Job.note

    def killed(job: load.Job, *, step: int, at: int, finished: bool = False) -> None:
        if at == 3:
            raise RuntimeError("killed")
        noted(job, step=step, at=at, finished=finished)

    with monkeypatch.context() as patch:
        patch.setattr(load.Job, "note", killed)
        assert pipelines.failure(settings) == "killed"
    assert 0 < server.state(topic)["head_seq"] < 1000
    pipelines.run(settings)
    assert server.data(topic) == [{"n": n} for n in range(1000)]


def test_only_files_that_are_new_are_loaded(
    server: Server, topic: str, pipelines: Pipelines, tmp_path: Path
) -> None:
    settings = Load(files=[str(tmp_path / "*.json")], into=topic)
    (tmp_path / "a.json").write_text("1\n")
    assert pipelines.run(settings) == {"files": 1, "records": 1}
    assert pipelines.run(settings) == {"files": 0, "records": 0}
    (tmp_path / "b.json").write_text("2\n")
    assert pipelines.run(settings) == {"files": 1, "records": 1}
    assert server.data(topic) == [1, 2]


def test_a_file_that_changes_in_the_middle_of_a_load_is_noticed(
    topic: str, pipelines: Pipelines, tmp_path: Path
) -> None:
    file = tmp_path / "a.json"
    file.write_text("1\n")
    settings = Load(files=[str(file)], into=topic)
    pipelines.run(settings)
    notes = pipelines.state / "it" / "set-000000.json"
    notes.write_text(json.dumps({**json.loads(notes.read_text()), "finished": False}))
    file.write_text("1\n2\n")
    assert "was changed or removed while it was being loaded" in pipelines.failure(settings)


def test_text_that_is_not_json_is_refused(topic: str, pipelines: Pipelines, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("1\nnope\n")
    assert "not valid JSON" in pipelines.failure(Load(files=[str(tmp_path / "a.json")], into=topic))


def test_mistakes_are_explained(topic: str, pipelines: Pipelines, tmp_path: Path) -> None:
    nowhere = str(tmp_path / "*.csv")
    assert pipelines.failure(Load(files=[nowhere], into=topic)) == f"no file matches {nowhere}"
    (tmp_path / "a.txt").write_text("1\n")
    assert "say which with format" in pipelines.failure(Load(files=[str(tmp_path / "a.txt")], into=topic))
    (pipelines.state / "it" / "set-000000.json").write_text("{")
    assert "cannot be read" in pipelines.failure(Load(files=[str(tmp_path / "a.txt")], into=topic))
