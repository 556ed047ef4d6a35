"""Files in an object store, with the options of delta-rs.

A file is one put: it is complete or it does not exist, and a writer that is killed leaves no pieces that
nobody lists. delta-rs ignores options that it does not know. Here an option is accepted if delta-rs or a
store knows it; the lists of names only serve to suggest the one that was meant.
"""

import io
import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Self

import obstore
import pyarrow as pa
from obstore import store as stores
from obstore.exceptions import AlreadyExistsError, UnknownConfigurationKeyError

from pyspark_topics.errors import PipelineFailed, did_you_mean, in_a_line
from pyspark_topics.pipelines.delta_table import FIRST_COMMIT, first_commit

_PROBES = "_topics_probe"
# A probe takes a second.
_OLD_PROBE = timedelta(hours=1)


@dataclass(frozen=True)
class ObjectStore:
    uri: str
    # Pairs, so that a task can carry them; never shown, because keys are among them.
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {"uri": self.uri, "options": self.options}

    @property
    def storage(self) -> dict[str, str] | None:
        return dict(self.options)

    @cached_property
    def store(self) -> Any:
        # The environment's own options are known to it, but for those of connections.
        of_environment = _sorted_out(
            one for one in os.environ.items() if one[0].lower().startswith(PREFIXES)
        )[1]
        own, connection = _sorted_out(self.options)
        connection = {**of_environment, **connection}
        open_store: Any = stores.from_url  # its types tell one kind of store from another; addresses do that
        while True:
            try:
                return open_store(self.uri, config=own, client_options=connection)
            except UnknownConfigurationKeyError as error:
                # One that only delta-rs knows, about its commits.
                unknown = [key for key in own if f"'{key.lower()}'" in str(error)]
                if not unknown:
                    raise
                del own[unknown[0]]

    def beside(self, suffix: str) -> Self:
        return type(self)(self.uri + suffix, self.options)

    def create(self, name: str) -> pa.NativeFile:
        """Return a file in memory; `finish` puts it when it is whole."""
        return pa.BufferOutputStream()

    def finish(self, name: str, stream: Any) -> int:
        content = stream.getvalue()
        self.put(name, memoryview(content).cast("B"))
        return int(content.size)

    def abandon(self, name: str, stream: pa.NativeFile) -> None:
        stream.close()

    def source(self, name: str) -> pa.NativeFile:
        return pa.PythonFile(_Object(self, name), "r")

    def files(self, ending: str) -> set[str]:
        with self.told("list"):
            listed = [one["path"] for page in obstore.list(self.store) for one in page]
        return {path for path in listed if path.endswith(ending) and not path.startswith("_")}

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            with self.told("remove a file of"), suppress(FileNotFoundError):
                obstore.delete(self.store, name)

    def is_free(self) -> bool:
        top = obstore.list_with_delimiter(self.store)
        found = [*top["common_prefixes"], *(one["path"] for one in top["objects"])]
        return all(path.startswith("_") for path in found)

    def refuse_unsafe(self) -> None:
        """Raise if a conditional put is not honoured. Some stores accept every put without an error."""
        name = f"{_PROBES}/{uuid.uuid4().hex}"
        with self.told("write to"):
            obstore.put(self.store, name, b"topics", mode="create")
            try:
                obstore.put(self.store, name, b"topics", mode="create")
            except AlreadyExistsError:
                return
            finally:
                # The probe, and those of writers that were killed while they tried.
                old = datetime.now(UTC) - _OLD_PROBE
                listed = (one for page in obstore.list(self.store, _PROBES) for one in page)
                self.remove([name, *(one["path"] for one in listed if one["last_modified"] < old)])
        raise PipelineFailed(
            f"the store of {self.uri} took a put with If-None-Match: * for an object that was there, so two "
            "writers could overwrite each other's commits: use a store that honours conditional puts"
        )

    def sync_commits(self, first: int, last: int) -> None:
        """Do nothing: an object is durable when the store has answered."""

    @contextmanager
    def told(self, what: str) -> Iterator[None]:
        """Turn an error of the store into one message, which also a task can pass on as text."""
        try:
            yield
        except PipelineFailed:
            raise
        except Exception as error:
            raise PipelineFailed(f"cannot {what} {self.uri}: {in_a_line(error)}") from error

    def put(self, name: str, content: Any) -> None:
        with self.told("write to"):
            obstore.put(self.store, name, content, use_multipart=False)

    def make_table(self, create: Callable[[str], object]) -> None:
        """Make the table in a folder and put its first commit: delta-rs would need a dozen requests."""
        commit = first_commit(create)
        with self.told("write to"), suppress(AlreadyExistsError):
            obstore.put(self.store, FIRST_COMMIT, commit, mode="create")

    def read(self, name: str) -> bytes | None:
        with self.told("read from"):
            try:
                return bytes(obstore.get(self.store, name).bytes())
            except FileNotFoundError:
                return None


def _sorted_out(options: Iterable[tuple[str, str]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split options into those of the store and those of connections, as obstore needs them."""
    own: dict[str, Any] = {}
    connection: dict[str, Any] = {}
    for key, value in options:
        plain = key.lower()
        for prefix in PREFIXES:
            plain = plain.removeprefix(prefix)
        if plain in OF_CONNECTIONS:
            connection[plain] = value
        else:
            own[key.lower()] = value
    return own, connection


class _Object(io.RawIOBase):
    """An object as a file: each read is a range, asked for when it is wanted."""

    def __init__(self, bucket: ObjectStore, name: str) -> None:
        self._bucket, self._name = bucket, name
        with bucket.told("read from"):
            self._size: int = obstore.head(bucket.store, name)["size"]
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        begin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = begin + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        left = max(self._size - self._at, 0)
        wanted = left if size < 0 else min(size, left)
        if not wanted:
            return b""
        with self._bucket.told("read from"):
            found = bytes(obstore.get_range(self._bucket.store, self._name, start=self._at, length=wanted))
        self._at += len(found)
        return found


# By the prefix that names of a store may have or not. Some of Azure's have a longer one.
_OF_STORES = {
    "aws_": "access_key_id bucket bucket_name checksum_algorithm conditional_put "
    "container_authorization_token_file container_credentials_full_uri container_credentials_relative_uri "
    "copy_if_not_exists default_region disable_bulk_delete disable_tagging endpoint endpoint_url "
    "imdsv1_fallback metadata_endpoint region request_payer role_arn role_session_name s3_express "
    "secret_access_key server_side_encryption session_token skip_signature sse_bucket_key_enabled "
    "sse_customer_key_base64 sse_kms_key_id token unsigned_payload virtual_hosted_style_request "
    "web_identity_token_file",
    "azure_storage_": "access_key account_key account_name authority_id client_id client_secret endpoint "
    "sas_key sas_token tenant_id token use_emulator",
    "azure_": "authority_host authority_id client_id client_secret container_name disable_tagging endpoint "
    "federated_token_file identity_endpoint msi_endpoint msi_resource_id object_id skip_signature tenant_id "
    "use_azure_cli use_fabric_endpoint",
    "google_": "application_credentials base_url bearer_token bucket bucket_name service_account "
    "service_account_key service_account_path skip_signature",
}
# About connections, with the prefix of any store.
_OF_CONNECTIONS = (
    "allow_http allow_invalid_certificates connect_timeout default_content_type http1_only "
    "http2_keep_alive_interval http2_keep_alive_timeout http2_keep_alive_while_idle http2_max_frame_size "
    "http2_only pool_idle_timeout pool_max_idle_per_host proxy_ca_certificate proxy_excludes proxy_url "
    "randomize_addresses read_timeout timeout user_agent"
)
# Of delta-rs itself: how it commits, whom it is, how often it tries, and with how many threads.
_OF_DELTA = (
    "aws_access_key_id_dynamodb aws_ec2_metadata_disabled aws_ec2_metadata_timeout "
    "aws_endpoint_url_dynamodb aws_force_credential_load aws_iam_role_arn aws_iam_role_session_name "
    "aws_profile aws_region_dynamodb aws_s3_addressing_style aws_s3_allow_unsafe_rename "
    "aws_s3_assume_role_arn aws_s3_get_internal_server_error_retries aws_s3_locking_provider "
    "aws_s3_pool_idle_timeout_seconds aws_s3_role_session_name aws_secret_access_key_dynamodb "
    "aws_session_token_dynamodb aws_sts_pool_idle_timeout_seconds delta_dynamo_billing_mode "
    "delta_dynamo_max_elapsed_request_time delta_dynamo_table_name max_retries retry_timeout init_backoff "
    "max_backoff base backoff_config.init_backoff backoff_config.max_backoff backoff_config.base "
    "backoff.init_backoff backoff.max_backoff backoff.base concurrency_limit max_concurrency "
    "object_store_concurrency_limit multi_threaded worker_threads thread_name enable_io enable_time"
)
OF_CONNECTIONS = frozenset(_OF_CONNECTIONS.split())
PREFIXES = ("aws_", "azure_", "google_")
OF_DELTA = frozenset(_OF_DELTA.split())
_NAMES = (
    OF_DELTA
    | {name for names in _OF_STORES.values() for name in names.split()}
    | {f"{prefix}{name}" for prefix, names in _OF_STORES.items() for name in names.split()}
    | {f"{prefix}{name}" for prefix in ("", *PREFIXES) for name in OF_CONNECTIONS}
)


def unknown_options(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the options that no store knows, each with a suggestion to add to the message."""
    for name in names:
        plain = name.lower()
        if plain not in _NAMES and not _is_of_a_store(plain):
            yield name, did_you_mean(plain, sorted(_NAMES))


def _is_of_a_store(name: str) -> bool:
    # Loaded where it is needed: most tables lie in folders.
    from obstore.exceptions import UnknownConfigurationKeyError
    from obstore.store import AzureStore, GCSStore, S3Store

    kinds: tuple[Any, ...] = (S3Store, AzureStore, GCSStore)
    for kind in kinds:
        try:
            kind("any", config={name: ""})
        except UnknownConfigurationKeyError:
            continue
        except Exception:
            pass
        return True
    return False
