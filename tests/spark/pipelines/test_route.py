"""`route`: a query between topics, exactly once, with loss announced on the other side."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from pyspark_topics.pipelines import Archive, Route
from tests.spark.pipelines.running import Pipelines
from tests.spark.server import Server

# The first query of a session takes long where others use the machine, too.
pytestmark = pytest.mark.timeout(300)

ORDER = "sku STRING, qty INT"


def tombstone(topic: str, gap_from: int, gap_to: int, reason: str) -> dict[str, Any]:
    return {"kind": "tombstone", "topic": topic, "gap_from": gap_from, "gap_to": gap_to, "reason": reason}


def test_sql_filters_and_projects(server: Server, topic: str, pipelines: Pipelines) -> None:
    server.append(
        topic, *({"data": {"sku": s, "qty": q}, "tag": s} for s, q in (("a", 1), ("b", 7), ("c", 9)))
    )
    route = Route(
        topics=[topic],
        into=f"{topic}.out",
        schema=ORDER,
        sql="SELECT data.sku, data.qty * 2 AS double, tag FROM records WHERE data.qty > 5",
    )
    assert pipelines.run(route) == {"read": 3, "written": 2}
    records, _ = server.diff(f"{topic}.out")
    assert [(r["data"], r["$tag"]) for r in records] == [
        ({"sku": "b", "double": 14}, "b"),
        ({"sku": "c", "double": 18}, "c"),
    ]
    server.append(topic, {"sku": "d", "qty": 6})
    assert pipelines.run(route) == {"read": 1, "written": 1}
    assert server.data(f"{topic}.out")[2:] == [{"sku": "d", "double": 12}]


def test_names_in_sql_are_found_in_any_case_and_as_written_first(
    server: Server, topic: str, pipelines: Pipelines
) -> None:
    server.append(f"{topic}.A", "upper")
    server.append(f"{topic}.a", "lower")
    both = [f"{topic}.A", f"{topic}.a"]
    pipelines.run(Route(topics=both, into=f"{topic}.all", sql="SELECT data FROM RECORDS"), "all")
    assert sorted(server.data(f"{topic}.all")) == ["lower", "upper"]
    for name, expected in zip(both, ("upper", "lower"), strict=True):
        route = Route(topics=both, into=f"{name}.out", sql=f"SELECT data FROM `{name}`")
        pipelines.run(route, expected)
        assert server.data(f"{name}.out") == [expected]


def test_loss_is_announced_in_the_derived_topic(server: Server, topic: str, pipelines: Pipelines) -> None:
    """Although the query's own filter would drop a row that has NULL as its data."""
    server.configure(topic, cap_records=3)
    server.append(topic, *range(10))
    route = Route(topics=[topic], into=f"{topic}.out", sql="SELECT data FROM records WHERE int(data) != 8")
    pipelines.run(route)
    assert server.data(f"{topic}.out") == [7, 9, tombstone(topic, 1, 7, "cap")]
    assert server.diff(f"{topic}.out")[0][2]["$tag"] == "tombstone"
    assert pipelines.notes.last["it"].gaps == 1


def test_loss_alone_is_announced_too(server: Server, topic: str, pipelines: Pipelines) -> None:
    server.configure(topic, cap_records=1)
    server.append(topic, *range(3))
    pipelines.run(
        Route(topics=[topic], into=f"{topic}.out", sql="SELECT data FROM records WHERE int(data) > 9")
    )
    assert server.data(f"{topic}.out") == [tombstone(topic, 1, 2, "cap")]


def test_loss_travels_on_through_a_second_route(server: Server, topic: str, pipelines: Pipelines) -> None:
    server.configure(topic, cap_records=1)
    server.append(topic, *range(3))
    pipelines.run(Route(topics=[topic], into=f"{topic}.1", sql="SELECT data FROM records"), "first")
    second = Route(
        topics=[f"{topic}.1"], into=f"{topic}.2", sql="SELECT data FROM records WHERE false OR data = 9"
    )
    pipelines.run(second, "second")
    assert server.data(f"{topic}.2") == [tombstone(topic, 1, 2, "cap")]


@pytest.mark.parametrize(
    "condition",
    [
        "data IN (SELECT u FROM nothing)",
        "EXISTS (SELECT 1 FROM nothing WHERE u = data)",
        "data NOT IN (SELECT string(NULL) FROM one)",
        "true LIMIT 1",
    ],
)
def test_loss_is_announced_whatever_the_query_reads(
    condition: str, server: Server, topic: str, pipelines: Pipelines, tmp_path: Path
) -> None:
    """None of these reads its source to the end; the plan of most does not have it any more."""
    server.configure(topic, cap_records=2)
    server.append(topic, *range(5))
    sources = [f"{topic}.before", topic]
    server.append(sources[0], {"data": tombstone("far", 1, 2, "ttl"), "tag": "tombstone"})
    tables = {"nothing": str(tmp_path / "nothing.csv"), "one": str(tmp_path / "one.csv")}
    (tmp_path / "nothing.csv").write_text("u\n")
    (tmp_path / "one.csv").write_text("u\nx\n")
    sql = f"SELECT data FROM records WHERE {condition}"
    pipelines.run(Route(topics=sources, into=f"{topic}.out", sql=sql, tables=tables))
    found = [one for one in server.data(f"{topic}.out") if isinstance(one, dict)]
    assert found == [tombstone("far", 1, 2, "ttl"), tombstone(topic, 1, 3, "cap")]


def test_what_is_no_record_goes_where_errors_go(server: Server, topic: str, pipelines: Pipelines) -> None:
    """Of the source what does not fit, whatever the query reads; of the result what cannot be written."""
    server.append(topic, {"sku": "a", "qty": 1}, {"sku": "b", "qty": "many"}, 7, {"sku": "c", "qty": 3})
    server.append(topic, {"sku": "d", "qty": 4})
    server.append(topic, {"data": tombstone("far", 1, 2, "ttl"), "tag": "tombstone"})
    route = Route(
        topics=[topic],
        into=f"{topic}.out",
        errors_into=f"{topic}.errors",
        schema=ORDER,
        sql="SELECT if(data.qty = 3, 'no json', to_json(data)) AS data, tag, "
        "if(data.qty = 4, '[]', NULL) AS meta, ts AS event_ts FROM records",
    )
    assert pipelines.run(route) == {"read": 5, "written": 1, "errors": 4}
    assert server.data(f"{topic}.out") == [{"sku": "a", "qty": 1}, tombstone("far", 1, 2, "ttl")]
    records, _ = server.diff(f"{topic}.errors")
    assert {record["$tag"] for record in records} == {"error"}
    found = sorted((record["data"] for record in records), key=lambda one: str(one["seq"]))
    assert [(one["kind"], one["pipeline"], one["topic"], one["seq"]) for one in found] == [
        ("error", "it", topic, 2),
        ("error", "it", topic, 3),
        ("error", "it", None, None),
        ("error", "it", None, None),
    ]
    assert found[0]["row"] == '{"sku":"b","qty":"many"}'
    assert found[0]["reason"] == f"it does not fit the schema: {ORDER}"
    made = {one["reason"].partition(":")[0]: one["row"]["data"] for one in found[2:]}
    assert made == {"data is not valid JSON": "no json", "meta is no object": '{"sku":"d","qty":4}'}
    assert pipelines.notes.last["it"].errors == 4
    # A batch that runs again is known, errors and all.
    shutil.rmtree(pipelines.state / "it" / "checkpoint" / "commits")
    pipelines.run(route)
    assert len(server.data(f"{topic}.errors")) == 4


def test_a_row_that_is_no_record_stops_a_route_and_is_shown(
    server: Server, topic: str, pipelines: Pipelines
) -> None:
    server.append(topic, 1, 2)
    for column, says in (
        ("if(seq = 2, NULL, data)", "a row has NULL as its data"),
        ("'{'", "not valid JSON"),
        ("if(seq = 2, repeat('t', 300), 't') AS tag, data", "row 2: tag has more than 256 bytes: 2"),
    ):
        route = Route(topics=[topic], into=f"{topic}.out", sql=f"SELECT {column} AS data FROM records")
        message = pipelines.failure(route)
        assert f'for topic "{topic}.out", partition 0, row ' in message
        assert says in message


def test_a_stateful_aggregate_keeps_its_state(server: Server, topic: str, pipelines: Pipelines) -> None:
    route = Route(
        topics=[topic],
        into=f"{topic}.sums",
        schema=ORDER,
        mode="update",
        sql="SELECT data.sku, sum(data.qty) AS qty FROM records GROUP BY data.sku",
    )
    server.append(topic, {"sku": "a", "qty": 1}, {"sku": "a", "qty": 2})
    pipelines.run(route)
    server.append(topic, {"sku": "a", "qty": 4})
    pipelines.run(route)
    assert server.data(f"{topic}.sums") == [{"sku": "a", "qty": 3}, {"sku": "a", "qty": 7}]


def enrich(records: DataFrame, customers: DataFrame) -> DataFrame:
    named = records.join(customers, f.get_json_object("data", "$.who") == customers.id)
    return named.select("name", f.col("seq").alias("order"))


def test_a_python_function_joins_with_a_table(
    server: Server, topic: str, pipelines: Pipelines, tmp_path: Path
) -> None:
    (tmp_path / "customers.csv").write_text("id,name\nx,Ada\ny,Grace\n")
    server.append(topic, {"who": "y"}, {"who": "nobody"}, {"who": "x"})
    tables = {"customers": str(tmp_path / "customers.csv")}
    pipelines.run(Route(topics=[topic], into=f"{topic}.out", python=enrich, tables=tables))
    assert server.data(f"{topic}.out") == [{"name": "Grace", "order": 1}, {"name": "Ada", "order": 3}]


def test_a_file_to_join_with_may_be_called_like_a_pattern(
    server: Server, topic: str, pipelines: Pipelines, tmp_path: Path
) -> None:
    (tmp_path / "s[1].csv").write_text("id,name\nx,Ada\n")
    (tmp_path / "s1.csv").write_text("id,age\nx,7\n")
    server.append(topic, {"who": "x"})
    tables = {"customers": str(tmp_path / "s[1].csv")}
    pipelines.run(Route(topics=[topic], into=f"{topic}.out", python=enrich, tables=tables))
    assert server.data(f"{topic}.out") == [{"name": "Ada", "order": 1}]
    for name in ("_s.csv", "s:1.csv"):
        (tmp_path / name).write_text("id,name\nx,Ada\n")
        route = Route(
            topics=[topic], into=f"{topic}.out", python=enrich, tables={"customers": str(tmp_path / name)}
        )
        assert f"{tmp_path / name} cannot be read, Spark " in pipelines.failure(route)


def test_a_table_of_the_lake_may_lie_anywhere(
    server: Server, topic: str, pipelines: Pipelines, tmp_path: Path
) -> None:
    lake = str(tmp_path / "my lake" / "orders")
    server.append(topic, 7)
    pipelines.run(Archive(topics=[topic], table=lake))
    sql = "SELECT r.data AS new, o.data AS old FROM records r JOIN old o ON r.data = o.data"
    pipelines.run(Route(topics=[topic], into=f"{topic}.out", sql=sql, tables={"old": lake}))
    assert server.data(f"{topic}.out") == [{"new": "7", "old": "7"}]


def test_tables_are_read_as_of_each_micro_batch(
    server: Server, topic: str, pipelines: Pipelines, tmp_path: Path, until: Callable[..., None]
) -> None:
    """Delta at its newest version, with partition columns, columns that came later, and what was deleted."""
    delta, plain = str(tmp_path / "prices"), tmp_path / "names.csv"
    config = {"delta.enableDeletionVectors": "true"}
    first = pa.table({"sku": ["a", "b"], "price": [1, 2], "region": ["n", "s"]})
    write_deltalake(delta, first, partition_by=["region"], configuration=config)
    more = pa.table({"sku": ["c"], "price": [3], "region": ["n"], "note": ["new"]})
    write_deltalake(delta, more, mode="append", schema_mode="merge")
    plain.write_text("id,name\na,Ada\n")
    sql = (
        "SELECT r.data.sku, p.price, p.region, p.note, n.name FROM records r LEFT JOIN prices p "
        "ON p.sku = r.data.sku LEFT JOIN names n ON n.id = r.data.sku"
    )
    tables = {"prices": delta, "names": str(plain)}
    route = Route(
        topics=[topic], into=f"{topic}.out", sql=sql, schema="sku STRING", tables=tables, every_s=0.05
    )

    def next_of(sku: str, count: int) -> Any:
        server.append(topic, {"sku": sku})
        until(lambda: len(server.data(f"{topic}.out")) == count)
        return server.data(f"{topic}.out")[-1]

    server.configure(f"{topic}.out")
    with pipelines.following({"it": route}):
        assert next_of("a", 1) == {"sku": "a", "price": 1, "region": "n", "name": "Ada"}
        assert next_of("c", 2) == {"sku": "c", "price": 3, "region": "n", "note": "new"}
        plain.write_text("id,name\na,Grace\nc,Edsger\n")
        DeltaTable(delta).delete("sku = 'c'")
        assert next_of("c", 3) == {"sku": "c", "name": "Edsger"}
        write_deltalake(
            delta,
            first.slice(0, 1).set_column(1, "price", pa.array([9])),
            mode="overwrite",
            schema_mode="merge",
        )
        DeltaTable(delta).vacuum(0, dry_run=False, enforce_retention_duration=False)
        assert next_of("a", 4) == {"sku": "a", "price": 9, "region": "n", "name": "Grace"}


def test_two_topics_are_joined_as_streams(server: Server, topic: str, pipelines: Pipelines) -> None:
    left, right = f"{topic}.l", f"{topic}.r"
    server.append(left, {"sku": "a", "qty": 1}, {"sku": "b", "qty": 2})
    server.append(right, {"sku": "b", "qty": 20})
    route = Route(
        topics=[left, right],
        into=f"{topic}.both",
        schema=ORDER,
        sql=f"SELECT l.data.sku, l.data.qty + r.data.qty AS qty FROM `{left}` l JOIN `{right}` r "
        "ON l.data.sku = r.data.sku",
    )
    pipelines.run(route)
    assert server.data(f"{topic}.both") == [{"sku": "b", "qty": 22}]


def test_tombstones_may_have_a_topic_of_their_own(server: Server, topic: str, pipelines: Pipelines) -> None:
    server.configure(topic, cap_records=1)
    server.append(topic, 1, 2)
    sql = "SELECT data FROM records"
    pipelines.run(Route(topics=[topic], sql=sql, into=f"{topic}.out", losses_into=f"{topic}.lost"))
    assert server.data(f"{topic}.out") == [2]
    assert server.data(f"{topic}.lost") == [tombstone(topic, 1, 1, "cap")]


def test_rows_may_name_their_topics(server: Server, topic: str, pipelines: Pipelines) -> None:
    server.configure(topic, cap_records=2)
    server.append(topic, 1, 2, 3)
    sql = f"SELECT data, concat('{topic}.', data) AS topic FROM records"
    pipelines.run(Route(topics=[topic], sql=sql, losses_into=f"{topic}.lost"))
    assert server.data(f"{topic}.2") == [2]
    assert server.data(f"{topic}.3") == [3]
    assert server.data(f"{topic}.lost") == [tombstone(topic, 1, 1, "cap")]


@pytest.mark.parametrize("by_pattern", [False, True])
def test_no_row_may_name_a_topic_of_its_route(
    server: Server, topic: str, pipelines: Pipelines, by_pattern: bool
) -> None:
    """It would come back for ever: one record had become 41 within seconds."""
    server.append(topic, 1)
    source: dict[str, Any] = {"pattern": f"{topic}.?"} if by_pattern else {"topics": [topic]}
    sql = f"SELECT data, '{topic}' AS topic FROM records"
    with pytest.raises(Exception, match=f"would read what it writes: a row names {topic}"):
        pipelines.run(Route(**source, sql=sql, losses_into=f"other-{topic}"))
    assert server.data(topic) == [1]


def test_meta_may_have_any_shape_the_sink_takes(server: Server, topic: str, pipelines: Pipelines) -> None:
    server.append(topic, 1)
    sql = "SELECT data AS text, map('from', topic) AS meta FROM records"
    pipelines.run(Route(topics=[topic], into=f"{topic}.out", sql=sql))
    (record,) = server.diff(f"{topic}.out")[0]
    assert (record["data"], record["meta"]) == ({"text": "1"}, {"from": topic})


def test_a_batch_that_runs_again_is_written_once(server: Server, topic: str, pipelines: Pipelines) -> None:
    server.configure(topic, cap_records=5)
    server.append(topic, *range(8))
    route = Route(topics=[topic], into=f"{topic}.out", sql="SELECT data FROM records")
    pipelines.run(route)
    before = server.data(f"{topic}.out")
    assert before == [3, 4, 5, 6, 7, tombstone(topic, 1, 3, "cap")]
    shutil.rmtree(pipelines.state / "it" / "checkpoint" / "commits")
    pipelines.run(route)
    assert server.data(f"{topic}.out") == before


def test_a_batch_written_before_its_input_went_does_not_block_the_route(
    server: Server, topic: str, pipelines: Pipelines
) -> None:
    server.append(topic, *range(5))
    route = Route(topics=[topic], into=f"{topic}.out", sql="SELECT data FROM records")
    pipelines.run(route)
    shutil.rmtree(pipelines.state / "it" / "checkpoint" / "commits")
    server.delete(topic, before_seq=3)
    server.append(topic, 5)
    pipelines.run(route)
    assert server.data(f"{topic}.out") == [0, 1, 2, 3, 4, 5]


def test_a_query_that_depends_on_chance_fails_loudly(
    server: Server, topic: str, pipelines: Pipelines
) -> None:
    server.append(topic, *range(5))
    route = Route(topics=[topic], into=f"{topic}.out", sql="SELECT string(rand()) AS data FROM records")
    pipelines.run(route)
    shutil.rmtree(pipelines.state / "it" / "checkpoint" / "commits")
    assert "stage_conflict" in pipelines.failure(route)
    assert len(server.data(f"{topic}.out")) == 5


def test_a_route_that_was_edited_behind_a_commit_says_how_to_go_on(
    server: Server, topic: str, pipelines: Pipelines
) -> None:
    server.append(topic, 1, 2)
    sql = "SELECT int(data) AS n FROM records"
    pipelines.run(Route(topics=[topic], into=f"{topic}.out", sql=sql))
    shutil.rmtree(pipelines.state / "it" / "checkpoint" / "commits")
    server.append(topic, 3)
    edited = Route(topics=[topic], into=f"{topic}.out", sql=sql.replace("int(data)", "int(data) * 10"))
    assert "batch 0 of it was committed before" in pipelines.failure(edited)
    assert "--accept" in pipelines.failure(edited)
    assert pipelines.runner(once=True, accept=True).run({"it": edited})["it"].ok
    assert server.data(f"{topic}.out") == [{"n": 1}, {"n": 2}, {"n": 30}]
    # Behind it, everything is as it was.
    server.append(topic, 4)
    pipelines.run(edited)
    assert server.data(f"{topic}.out")[3:] == [{"n": 40}]


def test_a_following_route_publishes_its_cursor_and_stops_cleanly(
    server: Server, topic: str, pipelines: Pipelines, until: Callable[..., None]
) -> None:
    server.append(topic, 1)
    route = Route(topics=[topic], into=f"{topic}.out", sql="SELECT data FROM records", every_s=0.05)

    def lag() -> int | None:
        cursors = server.ask("GET", f"/v0/topics/{topic}/cursors")["cursors"]
        return cursors[0]["lag"] if cursors else None

    with pipelines.following({"copy": route}):
        until(lambda: lag() == 0)
        server.append(topic, 2, 3)
        until(lambda: lag() == 0)
    assert server.data(f"{topic}.out") == [1, 2, 3]
    assert pipelines.notes.last["copy"].state == "stopped"
    assert pipelines.notes.last["copy"].records == 3


def test_a_topic_that_is_not_there_is_named_or_waited_for(
    server: Server, topic: str, pipelines: Pipelines, until: Callable[..., None]
) -> None:
    server.append(f"{topic}.orders", 1)
    route = Route(
        topics=[f"{topic}.ordres"], into=f"{topic}.out", sql="SELECT data FROM records", every_s=0.05
    )
    says = f'there is no topic "{topic}.ordres", did you mean "{topic}.orders"'
    assert pipelines.failure(route) == says
    pipelines.notes.last.clear()
    with pipelines.following({"it": route}):
        until(lambda: pipelines.notes.last["it"].state == "waiting" if pipelines.notes.last else False)
        assert f'for topic "{topic}.ordres", which is not there yet' in pipelines.notes.last["it"].note
        server.append(f"{topic}.ordres", 7)
        until(lambda: pipelines.notes.last["it"].state == "running")
        until(lambda: pipelines.notes.last["it"].records == 1)
    assert server.data(f"{topic}.out") == [7]
    # What was read once is not misspelled.
    server.drop(f"{topic}.ordres")
    pipelines.run(route)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"sql": "SELECT data FROM nowhere"}, "nowhere"),
        ({"sql": "SELEC data FROM records"}, "Syntax error at or near 'SELEC'"),
        ({"sql": "SELECT nothing FROM records"}, "`nothing` cannot be resolved"),
        ({"sql": "SELECT data FROM records", "schema": "a STRNG"}, 'Unsupported data type "STRNG"'),
        ({"sql": "SELECT 1 AS data"}, "reads none of its topics; it can name: "),
        ({"python": lambda orders: orders}, 'has a parameter "orders", but a route offers: '),
        ({"python": lambda records: 7}, "has to return a DataFrame, not int"),
        ({"sql": "SELECT tag FROM records"}, "no column that could be a record's data"),
        (
            {"sql": "SELECT c FROM records JOIN t", "tables": {"t": "/nowhere"}},
            "there is no table at /nowhere",
        ),
    ],
)
def test_a_bad_query_is_explained_without_a_trace(
    settings: dict[str, Any],
    says: str,
    topic: str,
    pipelines: Pipelines,
    caplog: pytest.LogCaptureFixture,
) -> None:
    message = pipelines.failure(Route(topics=[topic], into="x", **settings))
    assert says in message
    assert "\n" not in message
    assert not [record for record in caplog.records if record.name.startswith("pyspark_topics")]
