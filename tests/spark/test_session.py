"""Sessions: they know the source, and the shared one is started once; if it cannot be, that is explained."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from pyspark_topics.session import repeating

JOB = """
from pyspark_topics.session import beside, spark_session
spark = spark_session(master="local[1]")
for _ in range(2):
    try:
        beside(spark).read.format("topics").load()
    except Exception as error:
        print(str(error).splitlines()[0][:400])
"""


def test_a_session_beside_knows_the_source_where_spark_does_not_look_for_it(tmp_path: Path) -> None:
    home = tmp_path / "with space"
    home.symlink_to(Path(pyspark.__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", JOB],
        env=os.environ | {"SPARK_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    # It is the source that misses its options, both times.
    assert done.stdout.count("[PYTHON_DATA_SOURCE_ERROR]") == 2, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("local", "local[1, 4]"),
        ("local[*]", "local[*, 4]"),
        ("local[2]", "local[2, 4]"),
        ("local[2, 1]", "local[2, 1]"),
        ("local-cluster[1,1,1024]", "local-cluster[1,1,1024]"),
        ("spark://a:7077", "spark://a:7077"),
    ],
)
def test_a_task_whose_worker_dies_is_tried_again_on_one_machine_too(given: str, used: str) -> None:
    assert repeating(given) == used
