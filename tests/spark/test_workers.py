"""Processes that Spark starts: quick, because nothing is compiled twice, and silent when nobody listens."""

import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from pyspark_topics.workers import choose_python, quiet
from tests.support.waiting import eventually

INSTALLED = Path(pyspark.__file__).parent
ARCHIVES = INSTALLED / "python" / "lib"


def test_workers_take_pyspark_as_it_is_installed_and_nothing_else_leaves_their_path(tmp_path: Path) -> None:
    script = choose_python({"HOME": str(tmp_path)}, is_local=True)
    ours = [f"{ARCHIVES}/pyspark.zip", f"{ARCHIVES}/py4j-0-src.zip", f"{INSTALLED}/jars/spark-core.jar"]
    path = [ours[0], "/elsewhere/pyspark.zip", *ours[1:], "/elsewhere/spark-core.jar", "/a b/*"]
    code = (
        "import os, sys, pyspark as p; print(os.environ['PYTHONPATH'], sys.executable, p.__file__, sys.argv)"
    )
    done = subprocess.run(
        [script, "-c", code, "x  y"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": ":".join(path)},
        timeout=100,
        check=True,
    )
    kept = "/elsewhere/pyspark.zip:/elsewhere/spark-core.jar:/a b/*"
    assert done.stdout == f"{kept} {sys.executable} {pyspark.__file__} ['-c', 'x  y']\n"
    assert choose_python({"HOME": str(tmp_path)}, is_local=True) == script


def test_the_python_that_was_chosen_stays_and_other_machines_have_no_script(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    script = choose_python(home, is_local=True)
    assert choose_python(home | {"PYSPARK_PYTHON": "/opt/python"}, is_local=True) == "/opt/python"
    for before in ({}, {"PYSPARK_PYTHON": sys.executable}, {"PYSPARK_PYTHON": script}):
        assert choose_python(home | before, is_local=True) == script
        assert choose_python(home | before, is_local=False) == sys.executable


_DEAF = """
def main(infile, outfile):
    infile.read()  # until Spark has hung up
    outfile.write(b"rows" * 1000)
"""


def test_a_worker_that_spark_hung_up_on_leaves_no_trace(tmp_path: Path) -> None:
    """Through Spark's own daemon, spoken to as Spark does."""
    (tmp_path / "pyspark_deaf.py").write_text(_DEAF)
    environment = {"PYTHONPATH": str(tmp_path), "PYTHON_WORKER_FACTORY_SECRET": "secret"}
    # As Spark has it by default, and as it would print the trace in other words.
    environment["PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE"] = "1"
    with subprocess.Popen(
        [choose_python({"HOME": str(tmp_path)}, is_local=True), "-m", "pyspark.daemon", "pyspark_deaf"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | environment,
    ) as daemon:
        assert daemon.stdout is not None
        (port,) = struct.unpack("!i", daemon.stdout.read(4))
        with socket.create_connection(("127.0.0.1", port)) as spark:
            spark.sendall(struct.pack("!i", 6) + b"secret")
            (worker,) = struct.unpack("!i", spark.recv(4, socket.MSG_WAITALL))
            assert spark.recv(6, socket.MSG_WAITALL) == struct.pack("!i", 2) + b"ok"
        eventually(lambda: not Path(f"/proc/{worker}").exists(), 60)
        _, told = daemon.communicate(timeout=60)
    assert told == b""


@pytest.mark.parametrize("error", [BrokenPipeError, ConnectionResetError])
def test_only_that_is_kept_silent(error: type[Exception]) -> None:
    def worker(*_: object) -> int:
        raise error

    assert quiet(worker)(None, True) == os.EX_IOERR
    assert quiet(lambda *_: 0)(None, True) == 0


def test_other_errors_of_a_worker_are_told() -> None:
    def worker(*_: object) -> int:
        raise ValueError

    with pytest.raises(ValueError):
        quiet(worker)(None, True)
