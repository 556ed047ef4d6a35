"""Pipelines whose tables lie in an object store, executors included."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyspark_topics.errors import PipelineFailed
from pyspark_topics.pipelines import Archive, Audit, Erase, Replay, Route
from pyspark_topics.pipelines.lake import Lake
from pyspark_topics.pipelines.state import Checkpoint, StoredPath
from tests.spark.pipelines.running import Pipelines
from tests.spark.server import Server
from tests.support.stores import S3, Store

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize(
    "any_store", ["s3", pytest.param("gs", marks=pytest.mark.slow)], indirect=True
)  # where azurite is stands in the environment, which executors of a session that runs do not see
def test_archive_replay_route_audit_and_erase(
    spark: SparkSession, server: Server, topic: str, tmp_path: Path, any_store: Store
) -> None:
    table, name = any_store.uri(topic), f"{topic}.a"
    pipelines = Pipelines(spark, server, tmp_path / "state", storage=any_store.options)
    server.configure(name, cap_records=4)
    server.append(name, *({"data": {"n": n}, "tag": f"user:{n}"} for n in range(6)))
    assert pipelines.run(Archive(topics=[name], table=table, trim=True))["records"] == 4
    assert server.state(name)["earliest_seq"] == 7, "read back equal, and trimmed"
    assert pipelines.run(Audit(table=table))["ok"]
    pipelines.run(Replay(table=table, topic=name, into=f"{topic}.again"))
    assert [one["n"] for one in server.data(f"{topic}.again") if "n" in one] == [2, 3, 4, 5]
    joined = Route(
        topics=[f"{topic}.again"],
        into=f"{topic}.joined",
        sql="SELECT l.seq FROM records r JOIN l ON r.data = l.data",
        tables={"l": table},
    )
    pipelines.run(joined)
    rows = [one["seq"] for one in server.data(f"{topic}.joined") if "seq" in one]
    assert sorted(rows) == [3, 4, 5, 6]
    facts = pipelines.run(Erase(tag="user:3", tables=[table], topics=[name]))
    assert facts["tables"][0]["records"] == 1
    lake = Lake.existing(table, any_store.options)
    assert lake.location.files(".parquet") == {one.path for one in lake.files()}
    assert sum(one.rows for one in lake.files()) == 3


def test_a_route_needs_a_spark_that_reaches_its_checkpoint(
    spark: SparkSession, server: Server, topic: str, s3: S3
) -> None:
    server.append(topic, 1)
    state = StoredPath(s3.uri(topic), tuple(s3.options.items()))
    pipelines = Pipelines(spark, server, state, storage=s3.options)
    said = pipelines.failure(Route(topics=[topic], into=f"{topic}.out", sql="SELECT data FROM records"))
    assert f"Spark does not reach s3a://lake/{topic}/it/checkpoint" in said
    assert "Hadoop's jars for s3a:// in [spark]" in said
    assert "\n" not in said


@pytest.mark.parametrize("scheme", ["az", "abfs", "abfss"])
def test_a_checkpoint_in_azure_goes_by_the_name_that_hadoop_has_for_it(
    spark: SparkSession, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosted = "abfss://lake@acme.dfs.core.windows.net/it"
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "acme")
    given: list[tuple[tuple[str, str], ...]] = [
        (),
        (("AZURE_STORAGE_ACCOUNT_NAME", "other"),),
        (("account_name", "other"),),
    ]
    for options, account in zip(given, ("acme", "other", "other"), strict=True):
        said = _unreached(spark, StoredPath(f"{scheme}://lake/it", options))
        assert said.startswith(f"Spark does not reach {hosted.replace('acme', account)}/checkpoint, ")
        assert "Hadoop's jars for abfss:// in [spark]" in said
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME")
    assert f"{hosted}/checkpoint, " in _unreached(spark, StoredPath(hosted.replace("abfss", scheme)))
    said = _unreached(spark, StoredPath(f"{scheme}://lake/it"))
    assert said == (
        f"Spark wants to know the storage account of {scheme}://lake/it/checkpoint, where the checkpoint of "
        "this route is to be: give azure_storage_account_name in [storage], or make state a folder"
    )


def _unreached(spark: SparkSession, state: StoredPath) -> str:
    with pytest.raises(PipelineFailed) as failed:
        Checkpoint(state, spark)
    return str(failed.value)


def test_a_checkpoint_is_read_through_the_file_systems_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint" / "offsets"
    found = Checkpoint(StoredPath(f"file://{tmp_path}"), spark)
    assert (found.last(), found.planned(0)) == (-1, [])
    folder.mkdir(parents=True)
    (folder / "0").write_text("v1\n{}\nzero")
    (folder / "11").write_text("v1\n{}\na\nb")
    (folder / ".12.tmp").write_text("")
    (folder.parent / "metadata").write_text('{"id": "x"}')
    assert (found.last(), found.planned(11), found.query_id) == (11, ["a", "b"], "x")
    local = Checkpoint(tmp_path, spark)
    assert (local.last(), local.planned(11), local.query_id) == (11, ["a", "b"], "x")


def test_grown_files_need_a_folder(spark: SparkSession, s3: S3, topic: str) -> None:
    from pyspark_topics.pipelines.files import FileFormat

    with pytest.raises(PipelineFailed, match="make that a folder"):
        FileFormat.tail(None, spark, "x", 1, StoredPath(s3.uri(topic)))  # type: ignore[arg-type]
