"""The driver of a cluster as a process of its own, told what to do line by line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.cluster.driver import ANSWER
from tests.cluster.spark_cluster import SparkCluster

ROOT = Path(__file__).resolve().parents[2]


class Driver:
    def __init__(self, cluster: SparkCluster, log: Path) -> None:
        self._log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.cluster.driver", cluster.master],
                cwd=ROOT,
                env=cluster.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )

    def begin(self, job: str, **arguments: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"job": job, **arguments}).encode() + b"\n")
        self._process.stdin.flush()

    def finish(self) -> Any:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(ANSWER.encode()):
                answer = json.loads(line.removeprefix(ANSWER.encode()))
                assert "error" not in answer, answer["error"]
                return answer["result"]
        raise AssertionError(self._log.read_text()[-4000:])

    def run(self, job: str, **arguments: Any) -> Any:
        self.begin(job, **arguments)
        return self.finish()

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        finally:
            self._process.kill()
            self._process.stdout.close()
            self._process.wait()
