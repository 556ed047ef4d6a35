"""`audit` on real topics and tables: it finds what was taken away in secret, and only that."""

from __future__ import annotations

import random
from typing import Any

import pytest
from deltalake import DeltaTable

from pyspark_topics.offsets import SeqSet
from pyspark_topics.pipelines import Archive, Audit, Replay
from pyspark_topics.pipelines.audit import PASSED, ArchivedSeqs, LoggedSeqs, account, report
from pyspark_topics.pipelines.lake import Lake
from tests.docs.examples import ROOT
from tests.spark.histories import random_history
from tests.spark.pipelines.running import Pipelines
from tests.spark.server import Server


def seqs(*ranges: tuple[int, int]) -> SeqSet:
    return SeqSet.of(ranges)


def audited(pipelines: Pipelines, audit: Audit) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pipelines.run(audit, "audit")["topics"]
    return found


def test_archive_and_log_account_for_every_seq(
    server: Server, topic: str, pipelines: Pipelines, table: str
) -> None:
    server.configure(topic, cap_records=6)
    server.append(topic, *({"data": n, "tag": f"t{n}"} for n in range(8)))
    server.delete(topic, match="t3")
    pipelines.run(Archive(topics=[topic], table=table, trim=True))
    server.append(topic, *({"data": n, "tag": f"t{n}"} for n in range(8, 12)))
    server.delete(topic, match="t10")
    (found,) = audited(pipelines, Audit(topics=[topic], table=table))
    assert {
        key: found[key] for key in ("seqs", "archived", "live", "archived_and_live", "deleted", "lost")
    } == {
        "seqs": 12,
        "archived": 5,
        "live": 3,
        "archived_and_live": 0,
        "deleted": 2,
        "lost": {"cap": 2},
    }
    outcome = pipelines.once(Audit(topics=[topic], table=table), "audit")
    assert outcome.lines[-1] == "every seq is accounted for"
    assert any(topic in line and "12" in line for line in outcome.lines)


@pytest.mark.parametrize("seed", range(4))
def test_random_histories_are_accounted_for(
    server: Server, topic: str, pipelines: Pipelines, table: str, seed: int
) -> None:
    dice = random.Random(seed)
    for _ in range(2):
        random_history(server, topic, dice)
        pipelines.run(Archive(topics=[topic], table=table))
    random_history(server, topic, dice)
    (found,) = audited(pipelines, Audit(table=table))
    parts = (found["archived"], found["live"], -found["archived_and_live"], found["deleted"])
    assert sum(parts) + sum(found["lost"].values()) == found["seqs"] == server.state(topic)["head_seq"]


def test_a_file_taken_out_of_the_table_is_found_and_named(
    server: Server, topic: str, pipelines: Pipelines, table: str
) -> None:
    for numbers in (range(3), range(3, 5)):
        server.append(topic, *numbers)
        pipelines.run(Archive(topics=[topic], table=table))
    lake = Lake(table)
    (gone,) = [one for one in lake.files() if one.low["seq"] == 1]
    lake.replace([gone], [], changed=True)
    outcome = pipelines.once(Audit(topics=[topic], table=table), "audit")
    assert not outcome.ok
    assert outcome.facts["topics"][0]["unexplained"] == {PASSED: {"seqs": 3, "ranges": [[1, 3]]}}
    assert any("seqs 1 to 3 are passed by the archive" in line for line in outcome.lines)
    assert outcome.lines[-1] == "NOT every seq is accounted for"


def test_a_row_that_delta_rs_deleted_is_found_and_named(
    server: Server, topic: str, pipelines: Pipelines, table: str
) -> None:
    server.append(topic, *range(5))
    pipelines.run(Archive(topics=[topic], table=table))
    DeltaTable(table).delete("seq = 3")
    outcome = pipelines.once(Audit(topics=[topic], table=table), "audit")
    assert not outcome.ok
    assert outcome.facts["topics"][0]["unexplained"] == {PASSED: {"seqs": 1, "ranges": [[3, 3]]}}
    # What is left there is replayed.
    pipelines.run(Replay(table=table, topic=topic, into=f"{topic}.back"), "back")
    assert server.data(f"{topic}.back") == [0, 1, 3, 4]


def test_earlier_lives_of_a_topic_are_listed(
    server: Server, topic: str, pipelines: Pipelines, table: str
) -> None:
    server.append(topic, 1, 2)
    pipelines.run(Archive(topics=[topic], table=table))
    server.drop(topic)
    server.append(topic, 3)
    ended, current = audited(pipelines, Audit(topics=[topic], table=table))
    assert (ended["is_live"], ended["archived"]) == (False, 2)
    assert (current["is_live"], current["live"]) == (True, 1)


def test_a_topic_without_records_is_accounted_for(
    server: Server, topic: str, pipelines: Pipelines, table: str
) -> None:
    server.configure(topic)
    pipelines.run(Archive(topics=[topic], table=table))
    (found,) = audited(pipelines, Audit(topics=[topic], table=table))
    assert (found["seqs"], found["ok"]) == (0, True)


def test_a_log_without_an_archive_is_held_against_its_ledger(
    server: Server, topic: str, pipelines: Pipelines
) -> None:
    server.configure(topic, cap_records=2)
    server.append(topic, 1, 2, 3)
    (found,) = audited(pipelines, Audit(topics=[topic]))
    assert (found["live"], found["lost"]) == (2, {"cap": 1})


def test_the_report_looks_as_documented() -> None:
    shown = account(
        "orders",
        1,
        ArchivedSeqs(seqs((3, 7)), 5, seqs((1, 2)), 8),
        LoggedSeqs(1, 12, seqs((9, 10), (12, 12)), {"cap": seqs((1, 2)), "deleted": seqs((3, 8), (11, 11))}),
    )
    text = (ROOT / "docs" / "pipelines.md").read_text().partition("## Audit")[2]
    block = text.partition("```text\n")[2].partition("```")[0]
    assert "\n".join(report([shown])) + "\n" == block


def test_mistakes_are_explained(pipelines: Pipelines, table: str) -> None:
    assert "there is no table at" in pipelines.failure(Audit(topics=["t"], table=table))
    assert 'there is no topic "absent"' in pipelines.failure(Audit(topics=["absent"]))
    assert "nothing to audit" in pipelines.failure(Audit(pattern="no-such-topic-.*"))
    with pytest.raises(ValueError, match="give either topics"):
        Audit()
