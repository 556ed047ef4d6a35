"""The areas there are, by name. A new one is a module with `run(session)`, and a line here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from benchmarks import (
    bulk,
    http_read,
    http_write,
    inprocess,
    instructions,
    latency,
    memory,
    overload,
    peers,
    queues,
    quiet,
    recovery,
    routers,
    scale,
    sdk,
    shapes,
    spark,
    stages,
    watch,
)
from benchmarks.figures import Figure
from benchmarks.session import Session

Area = Callable[[Session], Iterator[Figure]]

AREAS: Mapping[str, Area] = {
    "inprocess": inprocess.run,
    "instructions": instructions.run,
    "http_write": http_write.run,
    "shapes": shapes.run,
    "http_read": http_read.run,
    "peers": peers.run,
    "latency": latency.run,
    "quiet": quiet.run,
    "bulk": bulk.run,
    "recovery": recovery.run,
    "memory": memory.run,
    "watch": watch.run,
    "routers": routers.run,
    "queues": queues.run,
    "overload": overload.run,
    "sdk": sdk.run,
    "stages": stages.run,
    "spark": spark.run,
    "scale": scale.run,
}
# Too long to run unasked.
ONLY_WHEN_NAMED = ("scale",)
