"""docs/cluster.md: what can run here runs here; other commands are checked word by word."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path

import pytest

from tests.cluster.spark_cluster import SPARK_HOME, SparkCluster
from tests.docs.examples import ROOT, examples
from tests.spark.server import Server

DOCUMENT = ROOT / "docs" / "cluster.md"
pytestmark = pytest.mark.timeout(300)
# What follows is a name of the user's.
_FREE = ("spark.yarn.appMasterEnv.", "spark.executorEnv.", "spark.kubernetes.driver.secretKeyRef.")
_VOLUME = re.compile(r"spark\.kubernetes\.(driver|executor)\.volumes\.(\w+)\.(\w+)\.(mount|options)\.(\w+)")


def commands(program: str) -> list[list[str]]:
    """All commands that begin so, as a shell would take them apart."""
    lines = "".join(block.code for block in examples(DOCUMENT, "sh")).replace("\\\n", " ").split("\n")
    return [shlex.split(line) for line in lines if line.strip() and shlex.split(line)[0].endswith(program)]


@cache
def options_of_spark_submit() -> dict[str, bool]:
    """Each option, and whether a value follows."""
    text = subprocess.run(
        [SPARK_HOME / "bin" / "spark-submit", "--help"], capture_output=True, text=True, check=False
    ).stderr
    found = re.findall(r"^  (?:-\w, |)(--[a-z-]+)(?:,? (?!\s)(\S+))?", text, re.M)
    assert len(found) > 20, text
    return {name: bool(value) for name, value in found}


def split(command: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Options with their values, and what is left: the program and its arguments."""
    known = options_of_spark_submit()
    options: dict[str, list[str]] = {}
    words = iter(command[1:])
    for word in words:
        if not word.startswith("--"):
            return options, [word, *words]
        assert word in known, word
        options.setdefault(word, []).append(next(words) if known[word] else "")
    return options, []


@cache
def texts_of_spark() -> bytes:
    """Everything that stands in the classes of the jars that read these settings."""
    found = []
    for name in ("core", "kubernetes", "yarn", "catalyst"):
        (jar,) = (SPARK_HOME / "jars").glob(f"spark-{name}_*.jar")
        with zipfile.ZipFile(jar) as archive:
            found += [archive.read(one) for one in archive.namelist() if one.endswith(".class")]
    return b"\0".join(found)


def is_setting(name: str) -> bool:
    if _VOLUME.fullmatch(name):
        return True
    for prefix in _FREE:
        if name.startswith(prefix):
            return prefix.encode() in texts_of_spark()
    # Some names are put together from a prefix and the rest.
    prefix, _, rest = name.rpartition(".")
    texts = texts_of_spark()
    return name.encode() in texts or (prefix.encode() in texts and f".{rest}".encode() in texts)


def test_commands_name_options_and_settings_that_spark_has() -> None:
    found = commands("spark-submit")
    assert {split(one)[0]["--master"][0].partition(":")[0] for one in found} == {"spark", "yarn", "k8s"}
    for one in found:
        options, program = split(one)
        assert program[0].endswith("count.py")
        for setting in options.get("--conf", []):
            assert is_setting(setting.partition("=")[0]), setting
    assert not is_setting("spark.kubernetes.container.picture")
    for name in re.findall(r"`(spark\.[\w.]+)`", DOCUMENT.read_text()):
        assert is_setting(name), name


def test_the_environment_is_found() -> None:
    (block,) = examples(DOCUMENT, "bash")
    script = block.code + 'test -x "$SPARK_HOME/bin/spark-class" && "$JAVA_HOME/bin/java" -version'
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    done = subprocess.run(
        ["bash", "-eu", "-c", script], env={"PATH": path, "HOME": "/tmp"}, capture_output=True
    )
    assert done.returncode == 0, done.stderr


def test_processes_are_started_as_the_document_says(cluster: SparkCluster) -> None:
    """By the fixture: the same classes, and options that it uses, too."""
    master, worker = commands("spark-class")
    assert master[1] in cluster.started["master"]
    assert worker[1] in cluster.started["worker-0"]
    for word in (*master, *worker):
        if word.startswith("--"):
            assert word in (*cluster.started["master"], *cluster.started["worker-0"])


def run(
    cluster: SparkCluster, command: list[str], folder: Path, server: Server
) -> subprocess.CompletedProcess[str]:
    real = [
        word.replace("spark://MASTER:7077", cluster.master).replace("http://SERVER:4000", server.url)
        for word in command
    ]
    path = f"{Path(sys.executable).parent}:{cluster.environment['PATH']}"
    done = subprocess.run(
        real,
        cwd=folder,
        env={**cluster.environment, "PATH": path},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_a_program_is_submitted(in_sight: Server, cluster: SparkCluster, tmp_path: Path) -> None:
    (block,) = examples(DOCUMENT, "python")
    (tmp_path / "count.py").write_text(block.code)
    in_sight.append("orders", 1, 2, 3)
    (command,) = [one for one in commands("spark-submit") if "spark://MASTER:7077" in one]
    assert run(cluster, command, tmp_path, in_sight).stdout.strip() == f"3 rows on {cluster.master}"


PIPELINES = """
[pipeline.lake]
kind = "archive"
topics = ["sealed"]
table = "lake"

[spark]
"spark.cores.max" = 2
"""


def test_pipelines_are_run(in_sight: Server, cluster: SparkCluster, tmp_path: Path) -> None:
    (tmp_path / "pipelines.toml").write_text(PIPELINES)
    (command,) = commands("topics")
    done = run(cluster, [*command, "--once", "--json"], tmp_path, in_sight)
    assert '"records": 60000' in done.stdout
