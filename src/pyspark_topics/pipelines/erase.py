"""`erase`: records with a tag removed for good, from the log, from its disk and from the lake; and a receipt.

    delete in all topics ─▶ purge the server's files ─▶ rewrite the lake's files ─▶ receipt

Every step can be repeated, so an erasure that was interrupted is simply run again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, ClassVar

import msgspec

from pyspark_topics.errors import PipelineFailed
from pyspark_topics.offsets import ORIGIN, Offsets, Position
from pyspark_topics.pipelines.context import Context, Outcome
from pyspark_topics.pipelines.erase_lake import Erased, Tagged, erase_table
from pyspark_topics.pipelines.erase_log import LogErasure
from pyspark_topics.pipelines.lake import Lake
from pyspark_topics.pipelines.sources import check_pattern, check_table
from pyspark_topics.pipelines.tables import table_lines
from topics.client import Client, Refused

# What no program can promise to have reached.
OUT_OF_REACH = (
    "backups and exports of the server or the tables",
    "what consumers have read and kept",
    "what was derived from them and lacks the tag, such as aggregates of a route and the state it keeps",
    "rows staged by a writer that has not committed them; they are given up after an hour",
    "blocks that file system or device have freed and not overwritten",
)


class Erase(msgspec.Struct, frozen=True, kw_only=True):
    kind: ClassVar[str] = "erase"
    follows: ClassVar[bool] = False

    # A tag, or the beginning of tags: `user:7`, `user:7:*`.
    tag: str
    # Without either: all topics. Where routers copy them to is always included.
    topics: list[str] = []
    pattern: str | None = None
    # Folders of tables of archives.
    tables: list[str] = []

    def __post_init__(self) -> None:
        if not self.tag.strip("* "):
            raise ValueError("tag has to say whose records are meant: a tag, or the beginning of tags and *")
        if self.topics and self.pattern is not None:
            raise ValueError("give either topics or pattern, not both; without either it is all topics")
        check_pattern(self.pattern)
        for table in self.tables:
            check_table(table)

    def run(self, context: Context) -> Outcome:
        started = datetime.now(UTC)
        lakes = [Lake.existing(path) for path in self.tables]
        with context.server.client() as client:
            log = LogErasure(client, self.tag, context.stop)
            topics = log.choose(self.topics, self.pattern)
            missing = [name for name in self.topics if name not in topics]
            if missing and not lakes:  # one that is gone from the server may still be in a table
                raise PipelineFailed(f'there is no topic "{missing[0]}"')
            context.progress.say("running", "deleting")
            log.delete(topics, context.progress.advance)
            purge = log.purge(topics, lambda note: context.progress.say("running", note))
            starts = _starts(client, topics)
            context.progress.say("running", "rewriting tables")
            erased = [self._erase_table(context, lake, starts, log) for lake in lakes]
        receipt = self._receipt(context, started, log, purge, erased)
        path = context.state / f"receipt-{started:%Y%m%dT%H%M%S}.json"
        path.write_text(json.dumps(receipt, indent=2) + "\n")
        lines = (*_shown(receipt), f"receipt: {path}")
        return Outcome(not log.keeps_arriving, lines, {**receipt, "receipt": str(path)})

    def _erase_table(self, context: Context, lake: Lake, starts: Offsets, log: LogErasure) -> Erased:
        everywhere = not self.topics and self.pattern is None
        # With all topics those are meant, too, that are in the lake only.
        tagged = Tagged(self.tag, None if everywhere else log.scope, self.pattern)
        # An archive may be at its first records of a topic, and the table not know of it yet.
        concerned = {t: at for t, at in starts.items() if log.deleted[t] or lake.position(t) is not None}
        erased = erase_table(context.spark, lake, tagged, concerned)
        context.progress.advance(erased.records)
        return erased

    def _receipt(
        self,
        context: Context,
        started: datetime,
        log: LogErasure,
        purge: dict[str, Any],
        erased: list[Erased],
    ) -> dict[str, Any]:
        return {
            "tag": self.tag,
            "server": context.server.url,
            "started": started.isoformat(timespec="seconds"),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "topics": log.deleted,
            "purge": {
                name: purge[name] for name in ("files_rewritten", "records", "segment_bytes", "journal_bytes")
            },
            "tables": [
                {
                    "table": one.table,
                    "records": one.records,
                    "files_rewritten": one.files_rewritten,
                    "files_removed": one.files_removed,
                    "version": one.version,
                }
                for one in erased
            ],
            "keeps_arriving": log.keeps_arriving,
            "out_of_reach": [*log.tagless, *OUT_OF_REACH],
        }


def _starts(client: Client, topics: list[str]) -> Offsets:
    """Where topics begin, for tables that do not know them yet."""
    found = {}
    for topic in topics:
        try:
            found[topic] = Position(ORIGIN, client.topic(topic)["epoch"])
        except Refused:
            continue  # gone meanwhile
    return found


def _shown(receipt: dict[str, Any]) -> Iterator[str]:
    purge = receipt["purge"]
    rows: list[list[object]] = [
        [f"topic {topic}", count, "deleted"] for topic, count in receipt["topics"].items() if count
    ]
    rows.append(["server's disk", purge["records"], f"purged, {purge['files_rewritten']} files written anew"])
    rows += [
        [
            f"table {one['table']}",
            one["records"],
            f"{one['files_rewritten']} files written anew, {one['files_removed']} removed",
        ]
        for one in receipt["tables"]
    ]
    yield from table_lines(("where", "records", "what"), rows, f"erased: {receipt['tag']}")
    if receipt["keeps_arriving"]:
        yield "records with this tag keep arriving: stop those who write them, and run this again"
    yield "not reached:"
    yield from (f"  - {one}" for one in receipt["out_of_reach"])
