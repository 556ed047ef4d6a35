"""Object stores on this machine, as processes of their own: moto for S3, azurite for Azure.

Spark reaches S3 through Hadoop, which needs jars and settings.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Mapping
from pathlib import Path

# Without the header, moto accepts every put, as some stores do.
_MOTO = """
import logging, sys
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

logging.getLogger("werkzeug").setLevel(logging.ERROR)
answer = DomainDispatcherApplication(create_backend_app)

def careless(environment, start):
    environment.pop("HTTP_IF_NONE_MATCH", None)
    return answer(environment, start)

server = make_server("127.0.0.1", 0, careless if "careless" in sys.argv else answer, threaded=True)
print(server.server_port, flush=True)
server.serve_forever()
"""
BUCKET = "lake"
# The key of the account that every azurite has.
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


class Store:
    """`options` are those of delta-rs; `uri` makes an address in its only bucket."""

    scheme: str
    options: Mapping[str, str]
    _process: subprocess.Popen[str]

    def uri(self, name: str) -> str:
        return f"{self.scheme}://{BUCKET}/{name}"

    def names(self, name: str = "") -> set[str]:
        """Return the names below an address."""
        import obstore
        from obstore.store import from_url

        options = {key.removeprefix("aws_"): value for key, value in self.options.items()}
        http = {"allow_http": options.pop("allow_http")}
        store = from_url(self.uri(name).rstrip("/"), config=options, client_options=http)  # type: ignore[call-overload]
        return {one["path"] for page in obstore.list(store) for one in page}

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


class S3(Store):
    scheme = "s3"

    def __init__(self, *, careless: bool = False) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _MOTO, *(["careless"] if careless else [])],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        port = int(self._process.stdout.readline())
        self.options = {
            "aws_endpoint_url": f"http://127.0.0.1:{port}",
            "aws_access_key_id": "testing",
            "aws_secret_access_key": "testing",
            "aws_region": "us-east-1",
            "aws_allow_http": "true",
        }
        self._make_bucket(port)

    def _make_bucket(self, port: int) -> None:
        import http.client

        signed = "AWS4-HMAC-SHA256 Credential=testing/20260101/us-east-1/s3/aws4_request, SignedHeaders=host"
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("PUT", f"/{BUCKET}", headers={"Authorization": f"{signed}, Signature=x"})
        assert connection.getresponse().status == 200
        connection.close()


class Azure(Store):
    """Azurite, which npm installs into a folder that later runs use."""

    scheme = "az"

    def __init__(self, folder: Path) -> None:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = found.getsockname()[1]
        command = [
            _azurite(),
            "--silent",
            "--skipApiVersionCheck",
            "--disableTelemetry",
            "--location",
            str(folder),
            "--blobPort",
            str(port),
        ]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, text=True)
        self.options = {
            "azure_storage_account_name": "devstoreaccount1",
            "azure_storage_account_key": _KEY,
            # Azurite cannot begin a list in the middle, which clients expect of an emulator only.
            "azure_storage_use_emulator": "true",
            "allow_http": "true",
        }
        os.environ["AZURITE_BLOB_STORAGE_URL"] = f"http://127.0.0.1:{port}"
        self._await(port)
        self._make_container(port)

    def _await(self, port: int) -> None:
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                time.sleep(0.1)
        raise AssertionError("azurite does not start")

    def _make_container(self, port: int) -> None:
        """Create the container with a signed request, which obstore does not offer."""
        import base64
        import hashlib
        import hmac
        import http.client
        from email.utils import formatdate

        account, version = self.options["azure_storage_account_name"], "2021-08-06"
        date = formatdate(usegmt=True)
        text = (
            "PUT\n\n\n\n\n\n\n\n\n\n\n\n"
            f"x-ms-date:{date}\nx-ms-version:{version}\n/{account}/{account}/{BUCKET}\nrestype:container"
        )
        key = base64.b64decode(self.options["azure_storage_account_key"])
        signature = base64.b64encode(hmac.new(key, text.encode(), hashlib.sha256).digest()).decode()
        headers = {
            "x-ms-date": date,
            "x-ms-version": version,
            "Content-Length": "0",
            "Authorization": f"SharedKey {account}:{signature}",
        }
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("PUT", f"/{account}/{BUCKET}?restype=container", headers=headers)
        answer = connection.getresponse()
        assert answer.status == 201, answer.read()
        connection.close()


def _azurite() -> str:
    found = shutil.which("azurite")
    if found is None:
        folder = Path.home() / ".cache" / "topics-tests" / "azurite"
        found = str(folder / "node_modules" / ".bin" / "azurite")
        if not Path(found).exists():
            folder.mkdir(parents=True, exist_ok=True)
            subprocess.run(
                ["npm", "install", "--prefix", str(folder), "azurite"], check=True, capture_output=True
            )
    return found


# --- Hadoop's file system for S3 ---------------------------------------------------------------------------

# This package of PyPI contains both jars.
_PACKAGE = "sagemaker-pyspark==1.4.5"
_JARS = ("hadoop-aws-3.3.1.jar", "aws-java-sdk-bundle-1.11.901.jar")
# Spark's Hadoop is newer than these jars, which do not know its defaults (texts such as "60s", and classes).
_OF_THEIR_TIME = {
    "assumed.role.session.duration": "30m",
    "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    "connection.establish.timeout": "5000",
    "connection.timeout": "200000",
    "multipart.purge.age": "86400",
    "threads.keepalivetime": "60",
}


def s3a_settings(store: S3) -> dict[str, str]:
    """Return settings for `[spark]`."""
    told = {
        "endpoint": store.options["aws_endpoint_url"],
        "access.key": store.options["aws_access_key_id"],
        "secret.key": store.options["aws_secret_access_key"],
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
        **_OF_THEIR_TIME,
    }
    jars = ",".join(str(jar) for jar in _jars())
    return {"spark.jars": jars, **{f"spark.hadoop.fs.s3a.{key}": value for key, value in told.items()}}


def _jars() -> list[Path]:
    """Download the jars once into a folder that later runs use."""
    folder = Path.home() / ".cache" / "topics-tests" / "hadoop"
    found = [folder / name for name in _JARS]
    if not all(jar.exists() for jar in found):
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        subprocess.run([*command, "--dest", str(folder), _PACKAGE], check=True, capture_output=True)
        (archive,) = folder.glob("*.tar.gz")
        with tarfile.open(archive) as packed:
            for member in packed.getmembers():
                member.name = Path(member.name).name
                if member.name in _JARS:
                    packed.extract(member, folder, filter="data")
        archive.unlink()
    return found
