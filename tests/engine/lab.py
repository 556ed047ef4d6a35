"""A node in a directory of its own, driven by hand."""

from __future__ import annotations

from tests.log.harness import Lab
from topics.core.settings import Settings
from topics.engine.node import Node


class NodeLab(Lab):
    """Everything a server has but its wire; nothing runs by itself."""

    node: Node

    def open(self) -> None:
        settings = Settings(data_dir=str(self.directory), **self.settings)
        self.node = Node(settings, self.disk, self.clock)
        self.node.recover()
        self.engine, self.checkpointer = self.node.engine, self.node.checkpointer

    def close(self, *, clean: bool) -> None:
        self.node.leave(clean=clean)
