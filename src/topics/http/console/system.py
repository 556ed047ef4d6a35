"""For an operator's eyes: the settings in force, the keys by name, and what lies in the data directory."""

import asyncio
import os
from dataclasses import fields
from typing import Any

from topics.core import variable
from topics.engine.node import Node
from topics.http.admission.auth import ADMIN, SCOPES, KeyRing
from topics.http.exchange import Exchange
from topics.http.routes.service import answer
from topics.http.routing import Route

# Of each folder; the rest is in its sums.
MOST_FILES = 100


class SystemRoutes:
    def __init__(self, node: Node, keyring: KeyRing) -> None:
        self._node = node
        self._keyring = keyring

    def routes(self) -> list[Route]:
        return [Route("GET", "/v0/admin/system", self.show, scopes=ADMIN, all_names=True)]

    async def show(self, exchange: Exchange) -> None:
        folders = await asyncio.to_thread(self._folders)
        answer(exchange, {"settings": self._settings(), "keys": self._keys(), "folders": folders})

    def _settings(self) -> list[dict[str, Any]]:
        """Never a secret: of those it is only told whether there are some."""
        settings, usual = self._node.settings, type(self._node.settings)()
        told: list[dict[str, Any]] = []
        for one in fields(settings):
            value = getattr(settings, one.name)
            is_default = value == getattr(usual, one.name)
            if not one.repr:
                value = "(not shown)" if value else None
            told.append({"name": variable(one.name), "value": value, "is_default": is_default})
        return told

    def _keys(self) -> list[dict[str, Any]]:
        return [
            {
                "name": key.name,
                "scopes": [name for name, bit in SCOPES.items() if key.can(bit)],
                "prefixes": list(key.prefixes),
            }
            for key in self._keyring.keys
        ]

    def _folders(self) -> list[dict[str, Any]]:
        dirs = self._node.engine.dirs
        places = {"journal": dirs.journal, "segments": dirs.segments, "snapshots": dirs.snapshots}
        if self._node.settings.cold_dir is not None:
            places["cold"] = self._node.settings.cold_dir
        return [_folder(name, path) for name, path in places.items()]


def _folder(name: str, path: str) -> dict[str, Any]:
    files: list[tuple[str, int, int]] = []
    try:
        for entry in os.scandir(path):
            try:
                found = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # it has gone in the meantime
            if entry.is_file(follow_symlinks=False):
                files.append((entry.name, found.st_size, found.st_mtime_ns // 1_000_000))
    except OSError:
        pass  # a directory that was moved away is told of elsewhere
    files.sort(key=lambda file: file[2], reverse=True)
    return {
        "folder": name,
        "path": path,
        "count": len(files),
        "bytes": sum(size for _, size, _ in files),
        "newest": [{"name": file, "bytes": size, "changed_ms": ms} for file, size, ms in files[:MOST_FILES]],
    }
