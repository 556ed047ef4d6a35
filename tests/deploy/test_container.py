"""The image and the compose file, as far as they can be looked at without an engine that runs them."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from scripts import build_native

from tests.support import ServerProcess
from topics.cli.settings import read_settings

ROOT = Path(__file__).parents[2]


def instructions() -> list[tuple[str, str]]:
    """Of the Containerfile, lines joined, in order."""
    text = (ROOT / "Containerfile").read_text()
    text = re.sub(r"^#.*\n", "", text, flags=re.M).replace("\\\n", " ")
    return [(line.split()[0], line.split(None, 1)[1]) for line in text.splitlines() if line.strip()]


def last_stage() -> list[tuple[str, str]]:
    found = instructions()
    begin = max(number for number, (word, _) in enumerate(found) if word == "FROM")
    return found[begin:]


def of(word: str) -> list[str]:
    return [rest for each, rest in last_stage() if each == word]


def environment() -> dict[str, str]:
    return dict(pair.split("=", 1) for rest in of("ENV") for pair in shlex.split(rest))


def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
    return loaded


def test_no_root_one_volume_and_a_port() -> None:
    (user,) = of("USER")
    assert user.split(":")[0].isdigit()
    assert int(user.split(":")[0]) >= 1000
    assert of("VOLUME") == ["/data"]
    assert of("EXPOSE") == ["4000"]
    words = [word for word, _ in last_stage()]
    assert words.index("USER") < words.index("ENTRYPOINT")
    assert environment()["TOPICS_DATA_DIR"] == "/data"


def test_what_it_copies_is_there_and_not_ignored() -> None:
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for word, rest in instructions():
        if word == "COPY" and "--from" not in rest:
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists(), source
                assert source in allowed


def copy(source: Path, target: str) -> None:
    """As COPY does, without what .dockerignore leaves out."""
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    else:
        place = Path(target, source.name) if target.endswith("/") else Path(target)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, place)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_build_of_the_image_makes_a_server_with_the_native_codec(tmp_path: Path) -> None:
    """Its first stage, in a folder, with the Python and the compiler of this machine."""
    if not build_native.compiler() or not build_native.headers():
        pytest.skip("there is no C compiler, or there are no headers of Python")
    # With a PYTHONPATH, what is imported would be this clone.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"

    def run(command: str) -> str:
        done = subprocess.run(command, shell=True, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    for word, rest in instructions()[: -len(last_stage())]:
        here = re.sub(r"(?<!\S)/(?=opt/topics|src)", f"{tmp_path}/", rest)
        if word == "COPY":
            *sources, target = here.split()
            for source in sources:
                copy(ROOT / source, target)
        elif word == "RUN" and "apt-get" not in here:
            run(here)
    assert "codec: native" in run(f"{tmp_path}/opt/topics/bin/topics --version").splitlines()


def test_its_settings_are_settings() -> None:
    ours = {name: value for name, value in environment().items() if name.startswith("TOPICS_")}
    settings = read_settings(environment=ours).settings
    assert (settings.host, settings.port) == ("0.0.0.0", 4000)
    given = compose()["services"]["topics"]["environment"]
    assert read_settings(environment=ours | given).settings.allow_insecure_no_auth


def test_the_health_check_tells_a_server_from_none(server: ServerProcess) -> None:
    (rest,) = of("HEALTHCHECK")
    command = json.loads(rest[rest.index("CMD ") + 4 :])
    assert command[:2] == ["python", "-c"]
    host, port = server.host_and_port
    here = command[2].replace("'127.0.0.1', 4000", f"{host!r}, {port}")
    assert here != command[2]
    assert subprocess.run([sys.executable, "-c", here], timeout=60).returncode == 0
    nowhere = command[2].replace("'127.0.0.1', 4000", "'127.0.0.1', 1")
    assert subprocess.run([sys.executable, "-c", nowhere], timeout=60, capture_output=True).returncode != 0


def test_the_compose_file_holds_together() -> None:
    services = compose()["services"]
    assert set(services) == {"topics", "prometheus", "grafana"}
    assert services["topics"]["build"]["dockerfile"] == "Containerfile"
    for name, service in services.items():
        # Without keys, this machine alone may reach them.
        assert all(port.startswith("127.0.0.1:") for port in service["ports"]), name
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (ROOT / source).exists(), source
            else:
                assert source in compose()["volumes"], source


def test_prometheus_scrapes_the_server_and_has_its_alerts() -> None:
    folder = ROOT / "deploy" / "prometheus"
    config = yaml.safe_load((folder / "prometheus.yml").read_text())
    (job,) = config["scrape_configs"]
    # The alerts ask for this job.
    assert job["job_name"] == "topics"
    assert job["metrics_path"] == "/v0/metrics"
    assert job["static_configs"] == [{"targets": ["topics:4000"]}]
    assert all((folder / name).exists() for name in config["rule_files"])


def test_grafana_finds_prometheus_and_the_dashboard() -> None:
    folder = ROOT / "deploy" / "grafana" / "provisioning"
    (source,) = yaml.safe_load((folder / "datasources" / "prometheus.yml").read_text())["datasources"]
    assert (source["type"], source["url"]) == ("prometheus", "http://prometheus:9090")
    (provider,) = yaml.safe_load((folder / "dashboards" / "topics.yml").read_text())["providers"]
    mounted = [volume.split(":")[1] for volume in compose()["services"]["grafana"]["volumes"]]
    assert any(target.startswith(provider["options"]["path"] + "/") for target in mounted)
