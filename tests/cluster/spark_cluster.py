"""A standalone cluster from the pip package: a master and two workers, each a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pyspark

from pyspark_topics.java import ensure_java
from tests.support import eventually

START_S = 60
WORKERS = 2
SPARK_HOME = Path(pyspark.__file__).parent


class SparkCluster:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        # The words of each command, by the name of its process.
        self.started: dict[str, tuple[str, ...]] = {}
        self.master = ""
        self.environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(SPARK_HOME)}
        ensure_java(self.environment)

    def start(self) -> None:
        ports = ["--port", "0", "--webui-port", "0", "--host", "127.0.0.1"]
        log = self._launch("master", "org.apache.spark.deploy.master.Master", *ports)
        self.master = self._wait(log, r"Starting Spark master at (spark://\S+)")
        for number in range(WORKERS):
            work = self._folder / f"work-{number}"
            work.mkdir()
            size = ["--cores", "2", "--memory", "3g", "--work-dir", str(work)]
            log = self._launch(
                f"worker-{number}", "org.apache.spark.deploy.worker.Worker", *ports, *size, self.master
            )
            self._wait(log, r"Successfully (registered) with master")

    def _launch(self, name: str, program: str, *arguments: str) -> Path:
        log = self._folder / f"{name}.log"
        self.started[name] = (program, *arguments)
        with log.open("wb") as out:
            process = subprocess.Popen(
                [str(SPARK_HOME / "bin" / "spark-class"), program, *arguments],
                env=self.environment,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self._processes.append(process)
        return log

    def _wait(self, log: Path, pattern: str) -> str:
        def said() -> re.Match[str] | None:
            found = re.search(pattern, log.read_text(errors="replace"))
            assert found or self._processes[-1].poll() is None, log.read_text()
            return found

        found = eventually(said, START_S, log.read_text, every_s=0.05)
        assert found is not None
        return found[1]

    @property
    def workers(self) -> list[int]:
        return [process.pid for process in self._processes[1:]]

    def stop(self) -> None:
        for process in reversed(self._processes):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(START_S)
        self._processes = []
