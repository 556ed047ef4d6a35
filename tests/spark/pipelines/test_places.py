"""Places of tables and notes: the same in a folder and in an object store, and safe for several writers."""

from __future__ import annotations

import pickle
import subprocess
import sys
import traceback
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import Schema

from pyspark_topics.errors import PipelineFailed, written_for_users
from pyspark_topics.offsets import StreamOffset
from pyspark_topics.pipelines import object_store
from pyspark_topics.pipelines.delta_table import MARK, Location, location, make_table
from pyspark_topics.pipelines.lake import Lake
from pyspark_topics.pipelines.load import Loaded
from pyspark_topics.pipelines.object_store import ObjectStore
from pyspark_topics.pipelines.parquet import TableRange, read_file, write_files
from pyspark_topics.pipelines.state import SteppedJob, state_path
from pyspark_topics.pipelines.table_schema import RECORDS
from tests.spark.pipelines.lakes import add, records
from tests.support.google import Google
from tests.support.stores import S3, Store

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(params=["s3", "gs"])
def store(request: pytest.FixtureRequest, s3: S3, google: Google) -> Store:
    return s3 if request.param == "s3" else google


@pytest.fixture(params=["folder", "s3", "gs"])
def where(request: pytest.FixtureRequest, tmp_path: Path, s3: S3, google: Google, topic: str) -> Location:
    if request.param == "folder":
        return location(str(tmp_path / "table"))
    store: Store = s3 if request.param == "s3" else google
    return location(store.uri(topic), store.options)


def test_files_are_written_read_listed_and_removed_alike(where: Location) -> None:
    assert where.is_free()
    (one,) = write_files([records(1, 3), records(4, 9)], where)
    again = pickle.loads(pickle.dumps(where))
    assert pa.Table.from_batches(read_file(again, one.path, ["seq"]))["seq"].to_pylist() == list(range(1, 10))
    assert TableRange(where, (one.path,), "orders", 1, 3, 5).read(["seq", "data"]).to_pydict() == {
        "seq": [3, 4, 5],
        "data": ["3", "4", "5"],
    }
    assert where.files(".parquet") == {one.path}
    assert not where.is_free()
    where.remove([one.path, "not-there.parquet"])
    assert where.files(".parquet") == set()


def test_a_table_is_made_once_and_says_nothing_of_the_machine_that_made_it(where: Location) -> None:
    columns = Schema.from_arrow(RECORDS)
    made = make_table(where, columns, ("topic",), MARK)
    assert made.metadata().partition_columns == ["topic"]
    assert made.metadata().configuration == MARK
    again = make_table(where, columns, (), {})
    assert again.metadata().id == made.metadata().id
    assert again.version() == 0
    if isinstance(where, ObjectStore):
        assert "location" not in made.history()[0]["operationParameters"]


def test_a_store_that_takes_every_put_is_refused_and_left_clean(topic: str) -> None:
    careless = S3(careless=True)
    try:
        with pytest.raises(PipelineFailed, match=r"If-None-Match: \*.*use a store that honours") as found:
            Lake.to_write(careless.uri(topic), careless.options)
        assert "\n" not in str(found.value)
        assert careless.names() == set()
    finally:
        careless.stop()


def test_the_probe_of_a_store_is_removed_and_so_are_old_ones(
    s3: S3, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = location(s3.uri(topic), s3.options)
    assert isinstance(where, ObjectStore)
    where.put("_topics_probe/of-one-that-was-killed", b"")
    where.refuse_unsafe()
    assert s3.names(topic) == {"_topics_probe/of-one-that-was-killed"}
    assert where.is_free(), "a probe is no table of somebody else"
    monkeypatch.setattr(object_store, "_OLD_PROBE", timedelta(hours=-1))
    where.refuse_unsafe()
    assert s3.names(topic) == set()


def test_what_is_wrong_with_a_store_is_one_sentence(s3: S3) -> None:
    for attempt in (Lake.to_write, Lake.existing):
        with pytest.raises(PipelineFailed, match=r"s3://no-such-bucket/t: ") as found:
            attempt("s3://no-such-bucket/t", s3.options)
        assert "\n" not in str(found.value)


def test_what_a_store_refuses_a_task_is_one_sentence_too(s3: S3) -> None:
    """Of a task only text arrives: the sentence is found in it by the name of its error."""
    where = location("s3://no-such-bucket/t", s3.options)
    stream = where.create("x.parquet")
    for attempt in (
        lambda: where.finish("x.parquet", stream),
        lambda: where.source("x.parquet"),
        lambda: where.files(""),
    ):
        with pytest.raises(PipelineFailed, match=r"^cannot .* s3://no-such-bucket/t: ") as found:
            attempt()
        trace = "".join(traceback.format_exception(found.value))
        assert written_for_users(RuntimeError(trace)) == str(found.value)


def test_files_that_are_no_table_are_not_taken_over(s3: S3, topic: str) -> None:
    where = location(s3.uri(topic), s3.options)
    assert isinstance(where, ObjectStore)
    where.put("somebody/elses.csv", b"a,b")
    with pytest.raises(PipelineFailed, match="has files and is no Delta table"):
        Lake.to_write(s3.uri(topic), s3.options)


def test_options_are_told_apart_and_those_of_delta_alone_left_out(s3: S3, topic: str) -> None:
    options = {**s3.options, "AWS_S3_ALLOW_UNSAFE_RENAME": "true", "timeout": "60s", "AWS_ALLOW_HTTP": "true"}
    del options["aws_allow_http"]
    where = location(s3.uri(topic), options)
    assert isinstance(where, ObjectStore)
    where.put("note", b"1")
    assert (where.read("note"), where.read("other")) == (b"1", None)
    assert "testing" not in repr(where), "keys are not shown"


def test_the_environment_counts(s3: S3, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in s3.options.items():
        monkeypatch.setenv(key.upper(), value)
    lake = Lake.to_write(s3.uri(topic))
    add(lake, 1, 3)
    assert Lake.existing(s3.uri(topic)).position("orders") == StreamOffset(3, 1)


def test_notes_of_jobs_lie_in_a_store_too(s3: S3, topic: str, tmp_path: Path) -> None:
    state = state_path(s3.uri(topic), s3.options) / "again"
    state.mkdir(parents=True, exist_ok=True)
    job = SteppedJob.open(state / "replay.json", {"table": "x"})
    job.note(step=2, at=20)
    assert SteppedJob.open(state / "replay.json", {"table": "x"}) == job
    assert SteppedJob.read(state / "other.json") is None
    file = tmp_path / "a.json"
    file.write_text("1\n")
    first = Loaded(state).new(str(file), {"settings": 1})
    assert [found.id for found in Loaded(state).jobs] == [first.id]
    assert state_path(str(tmp_path), {}) == tmp_path


WRITER = """
import json, sys
from pyspark_topics.offsets import StreamOffset
from pyspark_topics.pipelines.lake import Lake
from pyspark_topics.pipelines.delta_table import Collision
from pyspark_topics.pipelines.parquet import write_files
from tests.spark.pipelines.lakes import records

lake = Lake.to_write(sys.argv[1], json.loads(sys.argv[2]))
while True:
    at = lake.position("orders")
    first = 1 if at is None else at.seq + 1
    if first > 12:
        break
    files = list(write_files([records(first, first + 1)], lake.location))
    try:
        lake.commit(files, {} if at is None else {"orders": at}, {"orders": StreamOffset(first + 1, 1)}, [])
    except Collision:
        lake.discard(files)
        lake.refresh()
"""


def test_writers_that_compete_write_everything_once(s3: S3, topic: str) -> None:
    import json

    command = [sys.executable, "-c", WRITER, s3.uri(topic), json.dumps(s3.options)]
    root = Path(__file__).parents[3]
    writers = [subprocess.Popen(command, cwd=root) for _ in range(4)]
    assert [one.wait(240) for one in writers] == [0] * 4
    lake = Lake.existing(s3.uri(topic), s3.options)
    found = TableRange(lake.location, tuple(one.path for one in lake.files()), "orders", 1, 1, 99).read(
        ["seq"]
    )
    assert found["seq"].to_pylist() == list(range(1, 13))
    assert lake.location.files(".parquet") == {one.path for one in lake.files()}, "nothing is left over"
