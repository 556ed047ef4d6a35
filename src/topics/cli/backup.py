"""`topics backup`: copy what a server has committed into a directory of backups, while it goes on.

Sealed segments are copied once and shared by all backups in the directory. The server is on this machine.
"""

import argparse
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from topics.cli.offline import add_where, offline_settings, operator_client, progress
from topics.cli.output import add_json, amount, counted, show
from topics.cli.parser import add_verb, any_bytes
from topics.cli.remote.client import ask
from topics.client import TopicsError
from topics.client.sync import Topics
from topics.core import UserMistake, moment
from topics.ops.backup import Backup, Source, stopped_server
from topics.ops.backup_directory import BackupDamaged, BackupStore, Manifest
from topics.storage import Filesystem, Identity

FOUND = 1
# The lease of a hold is a minute.
RENEW_S = 15.0


def add_parser(verbs: Any) -> None:
    parser = add_verb(verbs, "backup", run, __doc__)
    parser.add_argument(
        "directory", type=any_bytes, metavar="DEST", help="a directory of backups; made if it is missing"
    )
    where = add_where(parser)
    where.add_argument("--list", action="store_true", help="show the backups in DEST")
    where.add_argument("--verify", action="store_true", help="read every backup in DEST and check it")
    where.add_argument("--prune", type=int, metavar="KEEP", help="remove all but the newest KEEP backups")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    store = BackupStore(Filesystem(), arguments.directory)
    if arguments.list:
        return _list(store, as_json=arguments.json)
    if arguments.verify:
        return _verify(store, as_json=arguments.json)
    if arguments.prune is not None:
        return _prune(store, arguments.prune, as_json=arguments.json)
    return _backup(store, arguments)


def _backup(store: BackupStore, arguments: argparse.Namespace) -> int:
    if arguments.data_dir is not None:
        source = stopped_server(offline_settings(arguments.data_dir, arguments.cold_dir))
    else:
        source = running_server(operator_client(arguments.url))
    with store.alone(), progress(as_json=arguments.json) as steps, source as files:
        backup = Backup(store, files, steps)
        manifest = backup.take()
    names = ("name", "topics", "from_ms", "to_ms", "position")
    outcome = {name: getattr(manifest, name) for name in names} | {
        "segments": len(manifest.segments),
        "bytes": manifest.size,
        "copied_bytes": backup.copied_bytes,
        "damaged": backup.damaged,
        **_origin(store.identity(manifest)),
    }
    text = (
        f"backup {manifest.name}: {counted(manifest.topics, 'topic')}, {amount(manifest.size)}, "
        f"of which {amount(backup.copied_bytes)} were new; complete up to {moment(manifest.to_ms)}"
    )
    for path in backup.damaged:
        text += f"\ndamaged or missing where it came from: {path}"
    show(outcome, text, as_json=arguments.json)
    return FOUND if backup.damaged else 0


@contextmanager
def running_server(client: Topics) -> Iterator[Source]:
    """The server keeps these files as they are until the block ends."""
    with client:
        hold = ask(client, "POST", "/v0/admin/backup")
        path = f"/v0/admin/backup/{hold['hold']}"
        renewed = time.monotonic()

        def keep() -> None:
            nonlocal renewed
            if time.monotonic() - renewed > RENEW_S:
                ask(client, "POST", path + "/renew")
                renewed = time.monotonic()

        try:
            _require_visible(hold)
            yield Source(
                hold["data_dir"],
                hold["now"],
                hold["topics"],
                hold["position"],
                {entry["number"]: entry["path"] for entry in hold["snapshots"]},
                {entry["number"]: entry["path"] for entry in hold["segments"]},
                [(piece["path"], piece["base"]) for piece in hold["journal"]],
                keep,
                Identity(hold["identity"], hold["restored_from"] or ""),
            )
        finally:
            with suppress(TopicsError):
                ask(client, "DELETE", path)


def _require_visible(hold: dict[str, Any]) -> None:
    for path in (hold["data_dir"], *(piece["path"] for piece in hold["journal"])):
        if not os.access(path, os.R_OK):
            raise UserMistake(
                f"cannot read {path}: a backup runs on the machine of the server, as a user who may read "
                f"its directory {hold['data_dir']}"
            )


def _list(store: BackupStore, *, as_json: bool) -> int:
    listed: list[dict[str, Any]] = []
    for name in store.require_any():
        try:
            manifest = store.manifest(name)
        except BackupDamaged as error:
            listed.append({"name": name, "complete": False, "error": str(error)})
        else:
            listed.append({"name": name, "complete": manifest is not None} | _described(store, manifest))
    show({"backups": listed}, "\n".join(map(_line, listed)), as_json=as_json)
    return 0


def _line(one: dict[str, Any]) -> str:
    if "error" in one:
        return f"{one['name']}  unusable: {one['error']}"
    if not one["complete"]:
        return f"{one['name']}  incomplete: it was interrupted, and --prune removes it"
    begin = moment(one["from_ms"]) if one["from_ms"] else "the beginning"
    contents = f"{counted(one['topics'], 'topic')}  {amount(one['bytes'])}"
    origin = f"  restored from {one['restored_from']}" if one["restored_from"] else ""
    return f"{one['name']}  {contents}  {begin} to {moment(one['to_ms'])}{origin}"


def _described(store: BackupStore, manifest: Manifest | None) -> dict[str, Any]:
    if manifest is None:
        return {}
    names = ("created_ms", "from_ms", "to_ms", "position", "topics", "data_dir")
    described = {name: getattr(manifest, name) for name in names}
    return {**described, "bytes": manifest.size, **_origin(store.identity(manifest))}


def _origin(identity: Identity | None) -> dict[str, str | None]:
    """Which log it is a backup of, and which one that was restored from."""
    if identity is None:
        return {"identity": None, "restored_from": None}
    return {"identity": identity.identity, "restored_from": identity.restored_from or None}


def _verify(store: BackupStore, *, as_json: bool) -> int:
    names = store.require_any()
    with progress(as_json=as_json) as steps:
        findings = store.verify_all(steps)
    text = "\n".join(findings) or f"{counted(len(names), 'backup')} verified"
    show({"backups": names, "findings": findings}, text, as_json=as_json)
    return FOUND if findings else 0


def _prune(store: BackupStore, keep: int, *, as_json: bool) -> int:
    store.require_any()
    if keep < 1:
        raise UserMistake("--prune needs the number of backups to keep, at least 1")
    with store.alone():
        removed, kept, freed = store.prune(keep)
    text = f"removed {counted(len(removed), 'backup')} and {amount(freed)} of segments; {len(kept)} left"
    show({"removed": removed, "kept": kept, "segment_bytes": freed}, text, as_json=as_json)
    return 0
