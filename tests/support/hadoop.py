"""Hadoop's file system for S3, which Spark needs for a checkpoint there: its jars, and their settings."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

from tests.support.stores import S3

# On PyPI, where most people have nothing to do with it, this package has both jars inside.
_PACKAGE = "sagemaker-pyspark==1.4.5"
_JARS = ("hadoop-aws-3.3.1.jar", "aws-java-sdk-bundle-1.11.901.jar")
# Spark's Hadoop is younger than these, and its defaults are texts ("60s") and classes that they do not know.
_OF_THEIR_TIME = {
    "assumed.role.session.duration": "30m",
    "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    "connection.establish.timeout": "5000",
    "connection.timeout": "200000",
    "multipart.purge.age": "86400",
    "threads.keepalivetime": "60",
}


def s3a_settings(store: S3) -> dict[str, str]:
    """For `[spark]`."""
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
    """Downloaded once, into a folder that stays for the next time."""
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
