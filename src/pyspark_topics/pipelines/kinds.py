"""The kinds of pipelines there are, by the word in a declaration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark_topics.pipelines.archive import Archive
from pyspark_topics.pipelines.audit import Audit
from pyspark_topics.pipelines.erase import Erase
from pyspark_topics.pipelines.load import Load
from pyspark_topics.pipelines.replay import Replay
from pyspark_topics.pipelines.route import Route

KINDS: Mapping[str, type[Any]] = {one.kind: one for one in (Archive, Replay, Route, Load, Audit, Erase)}
