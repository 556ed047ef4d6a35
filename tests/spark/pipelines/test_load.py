"""`load`: files into a topic, each once, whatever is interrupted."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyspark_topics.errors import PipelineFailed
from pyspark_topics.pipelines import Load
from pyspark_topics.pipelines.load import Loaded, refuse_strangers
from pyspark_topics.pipelines.state import claim_state
from tests.spark.pipelines.running import Pipelines, killed_at
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
    assert 'the sink takes a string as column "tag", and this is int' in message


def test_a_load_that_was_killed_between_commit_and_note_goes_on(
    server: Server, topic: str, pipelines: Pipelines, tmp_path: Path
) -> None:
    (tmp_path / "a.json").write_text("".join(f'{{"n":{n}}}\n' for n in range(1000)))
    # A job keeps the sizes that it began with.
    state = pipelines.state / "it"
    state.mkdir(parents=True)
    claim_state(state)
    Loaded(state).new(str(tmp_path / "a.json"), {"into": topic, "split_bytes": 2_000, "commit_bytes": 1_000})
    settings = Load(files=[str(tmp_path / "a.json")], into=topic)
    assert pipelines.failure(settings, step=killed_at(3)) == "killed"
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


def test_a_broken_file_is_named_and_can_be_skipped_or_mended(
    server: Server, topic: str, pipelines: Pipelines, tmp_path: Path
) -> None:
    """The others are loaded all the same, and once."""
    (tmp_path / "a.json").write_text("1\n")
    broken = tmp_path / "b.json"
    broken.write_text("2\nnope\n")
    (tmp_path / "c.json").write_text("3\n")
    settings = Load(files=[str(tmp_path / "*.json")], into=topic)
    message = pipelines.failure(settings)
    assert f"{broken}, row 2 cannot be loaded" in message
    assert "not valid JSON" in message
    assert f": nope; mend it, or leave it out from now on with --skip {broken}" in message
    assert server.data(topic) == [1, 3]
    assert f"{broken}, row 2" in pipelines.failure(settings)
    broken.write_text("2\n22\n")
    assert pipelines.run(settings) == {"files": 1, "records": 2}
    assert server.data(topic) == [1, 3, 2, 22]
    # One that is gone, and was left out, is missed by nothing.
    (tmp_path / "d.json").write_text("nope\n")
    pipelines.failure(settings)
    (tmp_path / "d.json").unlink()
    runner = pipelines.runner(once=True, skip=(str(tmp_path / "d.json"),))
    assert runner.run({"it": settings})["it"].facts == {"files": 0, "records": 0}
    (tmp_path / "d.json").write_text("4\n")
    assert pipelines.run(settings) == {"files": 0, "records": 0}
    runner = pipelines.runner(once=True, again=(str(tmp_path / "d.json"), str(tmp_path / "a.json")))
    assert runner.run({"it": settings})["it"].facts == {"files": 2, "records": 2}
    assert server.data(topic) == [1, 3, 2, 22, 4, 1]
    assert pipelines.run(settings) == {"files": 0, "records": 0}


def test_files_are_skipped_and_taken_again_by_the_load_they_belong_to(
    server: Server, topic: str, pipelines: Pipelines, tmp_path: Path
) -> None:
    for name in ("left", "right"):
        (tmp_path / name).mkdir()
    ours, broken = tmp_path / "left" / "a.json", tmp_path / "left" / "b.json"
    ours.write_text("1\n")
    broken.write_text("nope\n")
    (tmp_path / "right" / "a.json").write_text("2\n")
    loads = {
        name: Load(files=[str(tmp_path / name / "*.json")], into=f"{topic}.{name}")
        for name in ("left", "right")
    }
    pipelines.runner(once=True).run(loads)
    runner = pipelines.runner(once=True, restart=True, again=(str(ours),), skip=(str(broken),))
    assert all(outcome.ok for outcome in runner.run(loads).values())
    assert (server.data(f"{topic}.left"), server.data(f"{topic}.right")) == ([1, 1], [2])
    # A run that is started again because of another file takes it but once.
    assert pipelines.runner(once=True, again=(str(broken),)).run(loads)["left"].ok is False
    runner = pipelines.runner(once=True, again=(str(ours),))
    for _ in range(2):
        assert runner.run(loads)["left"].ok is False
    assert server.data(f"{topic}.left") == [1, 1, 1]


def test_every_broken_file_is_named_and_one_without_a_byte_is_none(
    server: Server, topic: str, pipelines: Pipelines, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("id,name\n4,w\n5\n")
    (tmp_path / "b.csv").write_text("")
    (tmp_path / "c.csv").write_text("id,name\n1,x\n")
    (tmp_path / "d.csv").write_text("id,name\n6,u,t\n")
    message = pipelines.failure(Load(files=[str(tmp_path / "*.csv")], into=topic))
    assert f"{tmp_path}/a.csv, row 3 cannot be loaded" in message
    assert f"Also: {tmp_path}/d.csv, row 2 cannot be loaded" in message
    assert "b.csv" not in message
    assert server.data(topic) == [{"id": 1, "name": "x"}]


def test_a_line_that_does_not_fit_a_schema_is_shown(topic: str, pipelines: Pipelines, tmp_path: Path) -> None:
    broken = tmp_path / "a.json"
    broken.write_text('{"a": 5}\n{"a": "x"}\n')
    message = pipelines.failure(Load(files=[str(broken)], into=topic, schema="a BIGINT"))
    assert f"{broken}, row 2 cannot be loaded" in message
    assert ': {"a": "x"}; mend it, or leave it out from now on' in message


def test_every_csv_is_read_by_its_own_header(
    server: Server, topic: str, pipelines: Pipelines, tmp_path: Path
) -> None:
    """And gives the records that it gives alone, whatever types the others have."""
    (tmp_path / "a.csv").write_text("sku,qty\nx,1\n")
    (tmp_path / "b.csv").write_text("qty,sku,note\n2,7,new\n")
    pipelines.run(Load(files=[str(tmp_path / "*.csv")], into=topic))
    assert server.data(topic) == [{"sku": "x", "qty": 1}, {"qty": 2, "sku": 7, "note": "new"}]
    typed = Load(files=[str(tmp_path / "*.csv")], into=topic, schema="sku STRING, qty DOUBLE, at DATE")
    pipelines.run(typed, "typed")
    assert server.data(topic)[2:] == [{"sku": "x", "qty": 1.0}, {"qty": 2.0, "sku": "7", "note": "new"}]


def test_columns_of_one_name_are_told_apart_or_refused(
    server: Server, topic: str, pipelines: Pipelines, tmp_path: Path
) -> None:
    """Spark renames them. A type for the name that they had would be one for a column of NULLs."""
    file = tmp_path / "a.csv"
    file.write_text("a,b,A\n1,2,3\n")
    files = [str(file)]
    for schema in ("a BIGINT", "b BIGINT, A BIGINT"):
        for select in ([], ["struct(a) AS data"]):
            message = pipelines.failure(Load(files=files, into=topic, schema=schema, select=select))
            assert f'{file} cannot be loaded, its header names "{schema[-8]}" more than once' in message
            assert f"--skip {file}" in message
    pipelines.run(Load(files=files, into=topic, schema="b BIGINT, c BIGINT"), "others")
    pipelines.run(Load(files=files, into=topic), "plain")
    assert server.data(topic) == [{"a0": "1", "b": 2, "A2": "3"}, {"a0": 1, "b": 2, "A2": 3}]


def test_a_type_is_for_the_column_in_whichever_letters(
    server: Server, topic: str, pipelines: Pipelines, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("sku,qty\nx,1\n")
    pq.write_table(pa.table({"sku": ["y"], "qty": [2]}), tmp_path / "b.parquet")
    for name in ("a.csv", "b.parquet"):
        pipelines.run(Load(files=[str(tmp_path / name)], into=topic, schema="Qty DOUBLE"), name[0])
    assert server.data(topic) == [{"sku": "x", "Qty": 1.0}, {"sku": "y", "Qty": 2.0}]


def test_columns_that_only_some_parquet_files_have_are_kept(
    server: Server, topic: str, pipelines: Pipelines, tmp_path: Path
) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": [2], "b": ["x"]}), tmp_path / "2.parquet")
    files = [str(tmp_path / "*.parquet")]
    pipelines.run(Load(files=files, into=topic))
    pipelines.run(Load(files=files, into=topic, schema="a STRING"), "typed")
    assert server.data(topic) == [{"a": 1}, {"a": 2, "b": "x"}, {"a": "1"}, {"a": "2", "b": "x"}]


@pytest.mark.parametrize(
    ("text", "schema", "row", "excerpt"),
    [("a,b\n1,2\n3\n", None, 3, "3"), ("a,b\n1,2\n3,4\n5,x\n", "a INT, b INT", 4, "5,x")],
)
def test_a_csv_row_that_does_not_fit_is_shown(
    text: str, schema: str | None, row: int, excerpt: str, topic: str, pipelines: Pipelines, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text(text)
    message = pipelines.failure(Load(files=[str(tmp_path / "a.csv")], into=topic, schema=schema))
    assert f"a.csv, row {row} cannot be loaded" in message
    assert f": {excerpt}; mend it" in message


def test_a_file_that_was_loaded_and_changed_is_refused_and_one_that_grew_can_go_on(
    server: Server, topic: str, pipelines: Pipelines, tmp_path: Path
) -> None:
    lines, rows = tmp_path / "a.jsonl", tmp_path / "b.csv"
    lines.write_text("1\n")
    rows.write_text("a,b\n1,x\n")
    files = [str(lines), str(rows)]
    pipelines.run(Load(files=files, into=topic))
    lines.touch()
    assert pipelines.run(Load(files=files, into=topic)) == {"files": 0, "records": 0}
    lines.write_text("1\n2\n")
    rows.write_text("a,b\n1,x\n2,y\n")
    message = pipelines.failure(Load(files=files, into=topic))
    assert f'{lines} grew since it was loaded: load what was added with grown = "continue"' in message
    assert f". Also: {rows} grew since it was loaded" in message
    go_on = Load(files=files, into=topic, grown="continue")
    assert pipelines.run(go_on) == {"files": 2, "records": 2}
    assert pipelines.run(go_on) == {"files": 0, "records": 0}
    assert server.data(topic) == [1, {"a": 1, "b": "x"}, 2, {"a": 2, "b": "y"}]
    lines.write_text("1\n3\n4\n")
    assert f"{lines} was changed since it was loaded" in pipelines.failure(go_on)
    assert len(server.data(topic)) == 4


def test_copies_of_lines_that_were_added_go_once_they_are_loaded_and_not_before(
    server: Server, topic: str, pipelines: Pipelines, tmp_path: Path
) -> None:
    """An erasure does not find them, and their file may be removed meanwhile."""
    lines, copies = tmp_path / "a.jsonl", pipelines.state / "it" / "added"
    lines.write_text("1\n")
    settings = Load(files=[str(lines)], into=topic, grown="continue")
    pipelines.run(settings)
    lines.write_text("1\n2\n")
    for _ in range(2):
        assert pipelines.failure(settings, step=killed_at(1)) == "killed"
    assert (copies / "a.jsonl").read_text() == "2\n"
    pipelines.run(settings)
    assert server.data(topic) == [1, 2]
    assert list(copies.iterdir()) == []
    # As a run that was killed here leaves it.
    (copies / "a.jsonl").write_text("2\n")
    lines.unlink()
    assert "no file matches" in pipelines.failure(settings)
    assert list(copies.iterdir()) == []


# Taken for patterns, some would find others of these, or nothing.
NAMES = ["a", "b", "st*r", "stoor", "q?m", "qxm", "x[1]", "x1", "{a,b}", "[^a]", "a,b", "b\\s", "p%20q"]


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        ("json", None),
        ("json", "n INT"),
        ("csv", None),
        ("csv", "n INT"),
        ("parquet", None),
        ("parquet", "n INT"),
    ],
)
def test_a_name_is_no_pattern(
    server: Server, topic: str, pipelines: Pipelines, tmp_path: Path, kind: str, schema: str | None
) -> None:
    folder = tmp_path / "of {1,2}"
    folder.mkdir()
    for number, name in enumerate(NAMES):
        path = folder / f"{name}.{kind}"
        if kind == "parquet":
            pq.write_table(pa.table({"n": [number]}), path)
        else:
            path.write_text(f"n\n{number}\n" if kind == "csv" else f'{{"n": {number}}}\n')
    found = pipelines.run(Load(files=[str(folder / "*")], into=topic, schema=schema))
    assert found == {"files": len(NAMES), "records": len(NAMES)}
    assert sorted(record["n"] for record in server.data(topic)) == list(range(len(NAMES)))


def test_a_file_whose_name_looks_like_a_pattern_is_told_about_and_goes_on(
    server: Server, topic: str, pipelines: Pipelines, tmp_path: Path
) -> None:
    file = tmp_path / "x[1].csv"
    (tmp_path / "x1.csv").write_text("id,name\n5,v\n")
    file.write_text("id,name\n1,x\n2\n")
    settings = Load(files=[str(tmp_path / "*.csv")], into=topic, grown="continue")
    assert f"{file}, row 3 cannot be loaded" in pipelines.failure(settings)
    file.write_text("id,name\n1,x\n")
    pipelines.run(settings)
    file.write_text("id,name\n1,x\n2,y\n")
    assert pipelines.run(settings) == {"files": 1, "records": 1}
    assert [record["id"] for record in server.data(topic)] == [5, 1, 2]


def test_what_spark_passes_over_is_left_out_and_refused_if_it_is_named(
    server: Server, topic: str, pipelines: Pipelines, tmp_path: Path
) -> None:
    hidden = [tmp_path / name for name in ("_SUCCESS", "_a.json", "y.json._COPYING_", ".hidden.json")]
    for path in hidden:
        path.write_text("1\n")
    only = Load(files=[str(tmp_path / "_*")], into=topic, format="json")
    assert "_SUCCESS: a name that begins with _ or ." in pipelines.failure(only)
    # Spark does read a name with = in it: it may be that of a partition.
    (tmp_path / "_k=2.json").write_text("2\n")
    (tmp_path / "ok.json").write_text("3\n")
    folder = Load(files=[str(tmp_path / "*")], into=topic, format="json")
    assert pipelines.run(folder) == {"files": 2, "records": 2}
    assert pipelines.run(folder) == {"files": 0, "records": 0}
    (tmp_path / "new.json").write_text("4\n")
    named = Load(files=[str(tmp_path / "*.json"), *map(str, hidden)], into=topic, format="json")
    message = pipelines.failure(named)
    for path in hidden:
        assert f"{path} cannot be loaded, Spark passes over a name that begins with" in message
    assert server.data(topic) == [2, 3, 4]
    outcome = pipelines.runner(once=True, again=(str(hidden[1]),)).run({"it": folder})["it"]
    assert f"--again names {hidden[1]}, and Spark passes over" in outcome.facts["error"]


def test_a_name_that_spark_cannot_read_is_refused(
    server: Server, topic: str, pipelines: Pipelines, tmp_path: Path
) -> None:
    wrong, below = tmp_path / "c:d.json", tmp_path / "e:f" / "g[1].json"
    below.parent.mkdir()
    for path in (wrong, below, tmp_path / "ok.json", below.parent / "ok.json"):
        path.write_text("1\n")
    settings = Load(files=[str(tmp_path / "*.json"), str(tmp_path / "e:f" / "*")], into=topic)
    state = pipelines.state
    for _ in range(2):
        message = pipelines.failure(settings)
        assert f"{wrong} cannot be loaded, Spark cannot read a file with : in its name; rename it" in message
        assert f"{below} cannot be loaded, Spark cannot read a file below a folder with : in its" in message
        assert server.data(topic) == [1, 1]
        # What was refused is noted nowhere, so that it can be renamed.
        assert len(list((state / "it").glob("set-*.json"))) == 2


def test_mistakes_are_explained(topic: str, pipelines: Pipelines, tmp_path: Path) -> None:
    nowhere = str(tmp_path / "*.csv")
    assert pipelines.failure(Load(files=[nowhere], into=topic)) == f"no file matches {nowhere}"
    (tmp_path / "a.txt").write_text("1\n")
    assert "say which it is" in pipelines.failure(Load(files=[str(tmp_path / "a.txt")], into=topic))
    (pipelines.state / "it" / "set-000000.json").write_text("{")
    assert "cannot be read" in pipelines.failure(Load(files=[str(tmp_path / "a.txt")], into=topic))


def test_what_is_no_file_of_a_load_is_neither_skipped_nor_taken_again(tmp_path: Path) -> None:
    there, elsewhere = tmp_path / "a.json", tmp_path / "below" / "a.json"
    elsewhere.parent.mkdir()
    for path in (there, elsewhere):
        path.write_text("1\n")
    loads = {"it": Load(files=[str(tmp_path / "*.json")], into="t")}
    refuse_strangers(loads, tmp_path, {"--skip": (str(there),), "--again": ()})
    for path in (elsewhere, tmp_path / "misspelled.json"):
        with pytest.raises(PipelineFailed, match=f"--skip names {path}, which is no file of it"):
            refuse_strangers(loads, tmp_path, {"--skip": (str(path),)})
    with pytest.raises(PipelineFailed, match="no file of a load, and none is run"):
        refuse_strangers({}, tmp_path, {"--again": (str(there),)})
