"""TLS: what is spoken on the port, and certificates that are renewed while the server runs."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.server import Server
from tests.contract.test_boot import refuses_to_start
from tests.support import Answer, eventually


def make_certificate(directory: Path, name: str) -> tuple[Path, Path]:
    cert, key = directory / f"{name}.pem", directory / f"{name}.key"
    subject = ["-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30"]
    command = ["openssl", "req", "-x509", *kind, *subject, "-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


class SecureServer(Server):
    """Its own probe cannot be plain."""

    def probe(self) -> Answer:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        connection = http.client.HTTPSConnection(*self.host_and_port, timeout=30, context=context)
        with contextlib.closing(connection):
            connection.request("GET", "/readyz")
            return Answer.read(connection)


def trusting(*certs: Path) -> ssl.SSLContext:
    context = ssl.create_default_context()
    for cert in certs:
        context.load_verify_locations(cert)
    return context


def shown_name(server: Server, context: ssl.SSLContext) -> str:
    """Of the certificate that a new connection gets."""
    with (
        socket.create_connection(server.host_and_port, 30) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        found = secure.getpeercert()
    assert found is not None
    subject = found["subject"]
    return str(subject[0][0][1])  # type: ignore[index,misc]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    for name in ("first", "second"):
        make_certificate(directory, name)
    return directory


@pytest.fixture
def secure(tmp_path: Path, made: Path) -> Iterator[SecureServer]:
    for kind in ("pem", "key"):
        shutil.copy(made / f"first.{kind}", tmp_path / f"used.{kind}")
    environment = {
        "TOPICS_TLS_CERT": str(tmp_path / "used.pem"),
        "TOPICS_TLS_KEY": str(tmp_path / "used.key"),
    }
    server = SecureServer(tmp_path / "data", environment).start()
    yield server
    server.kill()


def test_requests_over_tls_and_a_certificate_that_is_renewed(
    secure: SecureServer, made: Path, tmp_path: Path
) -> None:
    context = trusting(made / "first.pem", made / "second.pem")
    kept = http.client.HTTPSConnection("127.0.0.1", secure.host_and_port[1], timeout=30, context=context)

    def send(method: str, path: str, body: object = None) -> tuple[int, dict[str, object]]:
        data = None if body is None else json.dumps(body).encode()
        kept.request(method, path, data, {"Content-Type": "application/json"} if data else {})
        answer = kept.getresponse()
        return answer.status, json.loads(answer.read())

    assert send("POST", "/v0/topics/t", {"records": [{"data": n} for n in range(500)]})[0] == 201
    status, page = send("POST", "/v0/topics/t/diff", {"limit": 1000})
    assert (status, len(page["records"])) == (200, 500)  # type: ignore[arg-type]
    # Refused before its body was read: the answer arrives all the same.
    assert send("POST", "/v0/nowhere", {"records": ["x" * 2_000_000]})[0] == 404
    kept.close()
    assert send("GET", "/v0/topics/t")[0] == 200
    assert shown_name(secure, context) == "first"
    # A file that cannot be used changes nothing.
    (tmp_path / "used.pem").write_text("no certificate")
    assert secure.process is not None
    os.kill(secure.process.pid, signal.SIGHUP)
    eventually(lambda: "the certificate stays as it was" in secure.log())
    assert shown_name(secure, context) == "first"
    for kind in ("pem", "key"):
        shutil.copy(made / f"second.{kind}", tmp_path / f"used.{kind}")
    os.kill(secure.process.pid, signal.SIGHUP)
    eventually(lambda: shown_name(secure, context) == "second")
    assert send("GET", "/v0/topics/t")[0] == 200
    kept.close()


def test_large_bodies_over_tls(secure: SecureServer, made: Path) -> None:
    """Most of such a body does not come the way of other input, and what is behind it does."""
    context, port = trusting(made / "first.pem"), secure.host_and_port[1]
    with contextlib.closing(
        http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=context)
    ) as kept:

        def send(path: str, body: object) -> dict[str, Any]:
            kept.request("POST", path, json.dumps(body).encode(), {"Content-Type": "application/json"})
            told: dict[str, Any] = json.loads(kept.getresponse().read())
            return told

        for size in (1_000, 30_000, 700):
            texts = [f"{n:0{size}d}" for n in range(100)]
            seq = send("/v0/topics/t", {"records": [{"data": text} for text in texts]})["first_seq"]
            page = send("/v0/topics/t/diff", {"from_seq": seq - 1, "limit": 100})
            assert [record["data"] for record in page["records"]] == texts[: len(page["records"])]
            assert page["records"]


def test_plain_requests_get_nothing(secure: SecureServer, made: Path) -> None:
    with secure.raw(b"GET /v0/health HTTP/1.1\r\nHost: localhost\r\n\r\n") as wire:
        assert wire.at_end()
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = trusting(made / "first.pem")
        context.minimum_version = context.maximum_version = version
        assert shown_name(secure, context) == "first"


def test_wrong_certificates_stop_the_start(tmp_path: Path, made: Path) -> None:
    cert, other = str(made / "first.pem"), str(made / "second.key")
    for number, settings in enumerate(
        (
            {"TOPICS_TLS_CERT": cert},
            {"TOPICS_TLS_CERT": cert, "TOPICS_TLS_KEY": other},
            {"TOPICS_TLS_CERT": cert, "TOPICS_TLS_KEY": str(tmp_path / "none")},
        )
    ):
        directory = tmp_path / str(number)
        directory.mkdir()
        said = refuses_to_start(directory, **settings)
        assert "TOPICS_TLS_CERT" in said
        assert "Traceback" not in said
