"""Tests here share the Spark session of those in tests/spark."""

from tests.spark.conftest import spark

__all__ = ["spark"]
