import os
import subprocess
import sys
from pathlib import Path

import pyspark

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
