"""The session that pipelines share: started once, and if it cannot be, that is explained."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from pyspark.logger import PySparkLogger

from pyspark_topics.errors import NoJava, PipelineFailed
from pyspark_topics.pipelines import sessions as sessions_module
from pyspark_topics.pipelines.sessions import Sessions


def failing(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def start(*_: Any) -> None:
        raise error

    monkeypatch.setattr(sessions_module, "spark_session", start)


def test_a_spark_that_does_not_start_leads_to_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, RuntimeError("Java gateway process exited"))
    sessions = Sessions("test", "nonsense", log=tmp_path / "spark.log")
    with pytest.raises(
        PipelineFailed, match=r"Spark does not start on nonsense, and /.*/spark\.log says why"
    ):
        sessions()


def test_what_is_explained_already_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, NoJava("there is no Java"))
    with pytest.raises(NoJava, match="there is no Java"):
        Sessions("test", None)()


def test_spark_does_not_repeat_what_is_wrong_with_a_query(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions_module, "spark_session", lambda *_: object())
    Sessions("test", None)()
    assert not PySparkLogger.getLogger("SQLQueryContextLogger").isEnabledFor(logging.ERROR)
