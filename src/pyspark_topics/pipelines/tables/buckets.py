"""Tables and notes in an object store, with the options of delta-rs.

A file is one put: it is there as a whole or not at all, and a writer that is killed leaves no pieces behind
that nobody lists.
"""

import io
import json
import os
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import obstore
import pyarrow as pa
from deltalake import DeltaTable, Schema
from obstore import store as stores
from obstore.exceptions import AlreadyExistsError, UnknownConfigurationKeyError

from pyspark_topics.errors import PipelineFailed
from pyspark_topics.pipelines.tables.option_names import OF_CONNECTIONS, PREFIXES
from pyspark_topics.pipelines.tables.places import Sink, create_table, in_a_line, open_table

_FIRST_COMMIT = f"_delta_log/{0:020}.json"
_PROBES = "_topics_probe"
# A probe takes a second.
_OLD_PROBE = timedelta(hours=1)


@dataclass(frozen=True)
class Bucket:
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

    def create(self, name: str) -> Sink:
        return _Put(self, name)

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
        """By trying it: some stores take every put, and say nothing."""
        name = f"{_PROBES}/{uuid.uuid4().hex}"
        with self.told("write to"):
            obstore.put(self.store, name, b"topics", mode="create")
            try:
                obstore.put(self.store, name, b"topics", mode="create")
            except AlreadyExistsError:
                return
            finally:
                self._sweep(name)
        raise PipelineFailed(
            f"the store of {self.uri} took a put with If-None-Match: * for an object that was there, so two "
            "writers could overwrite each other's commits: use a store that honours conditional puts"
        )

    def _sweep(self, probe: str) -> None:
        """The probe, and those of writers that were killed while they tried."""
        old = datetime.now(UTC) - _OLD_PROBE
        listed = (one for page in obstore.list(self.store, _PROBES) for one in page)
        self.remove([probe, *(one["path"] for one in listed if one["last_modified"] < old)])

    def sync_commits(self, first: int, last: int) -> None:
        """What a store has answered is safe."""

    @contextmanager
    def told(self, what: str) -> Iterator[None]:
        """What a store refuses is a sentence, also where a task asks it, of which only text arrives."""
        try:
            yield
        except PipelineFailed:
            raise
        except Exception as error:
            raise PipelineFailed(f"cannot {what} {self.uri}: {in_a_line(error)}") from error

    def put(self, name: str, content: Any) -> None:
        with self.told("write to"):
            obstore.put(self.store, name, content, use_multipart=False)

    def make_table(
        self, schema: Schema, partition_by: Sequence[str], properties: Mapping[str, str]
    ) -> DeltaTable:
        """Made on this machine, which comes to one put: in a store delta-rs would take a dozen requests."""
        with tempfile.TemporaryDirectory() as folder:
            create_table(folder, schema, partition_by, properties)
            actions = map(json.loads, Path(folder, _FIRST_COMMIT).read_text().splitlines())
            commit = "\n".join(json.dumps(_without_location(one)) for one in actions)
        with self.told("write to"), suppress(AlreadyExistsError):
            obstore.put(self.store, _FIRST_COMMIT, commit.encode(), mode="create")
        return open_table(self)

    # --- notes --------------------------------------------------------------------------------------------

    def read(self, name: str) -> bytes | None:
        with self.told("read from"):
            try:
                return bytes(obstore.get(self.store, name).bytes())
            except FileNotFoundError:
                return None

    def write(self, name: str, content: bytes) -> None:
        self.put(name, content)


def _without_location(action: dict[str, Any]) -> dict[str, Any]:
    action.get("commitInfo", {}).get("operationParameters", {}).pop("location", None)
    return action


def _sorted_out(options: Iterable[tuple[str, str]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Those about connections apart, as obstore wants them; delta-rs takes them with and without a prefix."""
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


class _Put:
    """In memory until it is whole."""

    def __init__(self, bucket: Bucket, name: str) -> None:
        self._bucket, self._name = bucket, name
        self.stream = pa.BufferOutputStream()

    def finish(self) -> int:
        content = self.stream.getvalue()
        self._bucket.put(self._name, memoryview(content).cast("B"))
        return int(content.size)

    def abandon(self) -> None:
        self.stream.close()


class _Object(io.RawIOBase):
    """An object as a file: each read is a range, asked for when it is wanted."""

    def __init__(self, bucket: Bucket, name: str) -> None:
        self._bucket, self._name = bucket, name
        with bucket.told("read from"):
            self._size: int = obstore.head(bucket.store, name)["size"]
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

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
