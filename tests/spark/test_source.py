"""What Spark starts processes for has to be quick to import: it gives them ten seconds to answer."""

import subprocess
import sys

# Each takes as long to import as all the rest, and planning a read needs none of them.
HEAVY = (
    "pyarrow.compute",
    "numpy.linalg",
    "topics.storage",
    "pyspark_topics.sealed",
    "pyspark_topics.writer",
)


def test_a_process_that_plans_reads_imports_little() -> None:
    code = (
        "import sys, pyspark.sql.streaming.python_streaming_source_runner as _; before = set(sys.modules)\n"
        "from pyspark_topics import DefaultSource\n"
        "source = DefaultSource({'url': 'http://x', 'subscribe': 'y'})\n"
        "source.reader(source.schema()), source.streamReader(source.schema())\n"
        f"print([name for name in {HEAVY} if name in set(sys.modules) - before])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.stdout == "[]\n", done.stdout + done.stderr
