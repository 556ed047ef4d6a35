"""Pipelines of the test's own, on the shared server."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.pipelines.running import Pipelines
from tests.spark.server import Server
from tests.support import eventually


@pytest.fixture
def pipelines(spark: SparkSession, server: Server, tmp_path: Path) -> Pipelines:
    return Pipelines(spark, server, tmp_path / "state")


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], None]:
    return partial(eventually, within_s=60.0, every_s=0.05)
