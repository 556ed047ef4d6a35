"""Pipelines of the test's own, on the shared server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyspark_topics.pipelines.lake import Lake
from tests.spark.pipelines.running import Pipelines
from tests.spark.server import Server
from tests.support import eventually
from tests.support.google import Google
from tests.support.stores import S3, Azure, Store


@pytest.fixture
def pipelines(spark: SparkSession, server: Server, tmp_path: Path) -> Pipelines:
    return Pipelines(spark, server, tmp_path / "state")


@pytest.fixture
def table(tmp_path: Path) -> str:
    """Where a table is to lie; neither it nor the folder around it is there yet."""
    return str(tmp_path / "lake" / "table")


@pytest.fixture
def lake(table: str) -> Lake:
    return Lake(table)


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], None]:
    return partial(eventually, within_s=60.0, every_s=0.05)


@pytest.fixture(scope="session")
def s3() -> Iterator[S3]:
    """Shared: every test uses addresses of its own."""
    store = S3()
    yield store
    store.stop()


@pytest.fixture(scope="session")
def google() -> Iterator[Google]:
    """Shared as well."""
    store = Google()
    yield store
    store.stop()


@pytest.fixture(
    params=["s3", pytest.param("az", marks=pytest.mark.slow), pytest.param("gs", marks=pytest.mark.slow)]
)
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """Each kind of store there is."""
    if request.param == "az":
        store = Azure(tmp_path / "azurite")
        yield store
        store.stop()
    else:
        yield request.getfixturevalue("s3" if request.param == "s3" else "google")
