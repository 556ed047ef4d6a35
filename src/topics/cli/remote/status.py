"""`topics status`: whether anything needs attention. Exit code 0: nothing does; 1: something does.

It tells of writes that are off, a disk that will soon be full, loss that readers were told of within a day,
consumers that a cap or age is about to overtake, dead letters, routers that are blocked, pipelines that have
failed, and consumers that have stopped.
"""

import argparse
from collections.abc import Callable
from typing import Any

from topics.cli.errors import DONE, REFUSED
from topics.cli.output import Output, amount, counted
from topics.cli.parser import add_verb
from topics.cli.remote.client import Json, ask, listed
from topics.cli.remote.options import add_flags, client_for

# A disk needs attention if less than this is left of its space and its time.
_LITTLE_ROOM = 0.05
_LITTLE_TIME_MS = 24 * 3_600_000
_WHY = {
    "cap": "a cap or a restart",
    "ttl": "age",
    "mixed": "caps and age",
    "source_trim": "a router's source",
}


def add_parser(verbs: Any) -> None:
    parser = add_verb(verbs, "status", run, __doc__, keeps_lines=True)
    add_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    with client_for(arguments) as client:
        found = ask(client, "GET", "/v0/overview?page_size=1")
        cursors = list(listed(client, "/v0/cursors", "cursors"))
    about = found["server"]
    attention = [*of_server(about), *(_TEXTS[item["kind"]](item) for item in found["attention"])]
    more = sum(found["attention_counts"].values()) - len(found["attention"])
    if more:
        attention.append(f"and {more} more like these")
    told: Json = {
        "status": "attention" if attention else "ok",
        "writes": about["writes"],
        "reason": about["reason"],
        "attention": attention,
        "items": found["attention"],
        "disk": about["disk"],
        "topics": about["topics"],
        "records": about["records"],
        "routers": about["routers"],
        "consumers": len(cursors),
        "worst_lag": max((each["lag"] or 0 for each in cursors), default=0),
        "version": about["version"],
        "uptime_ms": about["now_ms"] - about["started_ms"],
    }
    output = Output(arguments)
    if output.for_machines:
        output.row(told)
    else:
        _show(output, told)
    return REFUSED if attention else DONE


def of_server(about: Json) -> list[str]:
    texts = [] if about["writes"] else [f"writes are off: {about['reason']}"]
    disk = about["disk"]
    full_in_ms = disk["full_in_ms"]
    is_short = disk["free_bytes"] < disk["size_bytes"] * _LITTLE_ROOM
    if about["writes"] and disk["free_bytes"] < disk["reserve_bytes"]:
        texts.append(
            f"the disk has {amount(disk['free_bytes'])} left,"
            f" less than the {amount(disk['reserve_bytes'])} that are kept for removals"
        )
    elif is_short and full_in_ms is not None and full_in_ms < _LITTLE_TIME_MS:
        texts.append(
            f"the disk has {amount(disk['free_bytes'])} left and is full in about {_long(full_in_ms)}"
        )
    return texts


def _told(item: Json) -> str:
    begin = f"{item['topic']}: readers were told {counted(item['tombstones'], 'time')}"
    why = _WHY.get(item["reason"])
    if why is None:
        return f"{begin} that the topic was made anew"
    # Several readers may have been told of the same records.
    return f"{begin} of loss by {why}, {counted(item['missed'], 'record')} in all"


def _overtaken(item: Json) -> str:
    if not item["in_ms"]:
        return f"{item['consumer']} has lost records of {item['topic']} from seq {item['seq']:,} on"
    return f"{item['consumer']} loses seq {item['seq']:,} of {item['topic']} in about {_long(item['in_ms'])}"


_TEXTS: dict[str, Callable[[Json], str]] = {
    "told": _told,
    "overtaken": _overtaken,
    "damage": lambda item: (
        f"{item['topic']} lost {counted(item['lost'], 'record')} to a crash or a damaged file"
    ),
    "failed": lambda item: (
        f"pipeline {item['pipeline']} has failed{': ' if item['why'] else ''}{item['why'] or ''}"
    ),
    "blocked": lambda item: (
        f"router {item['router']} waits for room in {item['dest']}, "
        f"{counted(item['behind'], 'record')} behind"
    ),
    "stalled": lambda item: (
        f"{item['consumer']} has not moved on {item['topic']} for {_long(item['age_ms'])}, "
        f"{counted(item['lag'], 'record')} behind"
    ),
    "dead_letters": lambda item: (
        f"{item['dead_letter']} has {counted(item['count'], 'dead letter')} of {item['topic']}"
    ),
}


def _long(ms: float) -> str:
    for unit, size in (("days", 86_400_000), ("h", 3_600_000), ("min", 60_000)):
        if ms >= 2 * size:
            return f"{ms / size:.0f} {unit}"
    return f"{max(ms / 1000, 1):.0f} s"


def _show(output: Output, told: Json) -> None:
    disk = told["disk"]
    full = "" if disk["full_in_ms"] is None else f", full in about {_long(disk['full_in_ms'])}"
    output.say(f"writes     {'on' if told['writes'] else 'off: ' + str(told['reason'])}")
    output.say(f"disk       {amount(disk['free_bytes'])} of {amount(disk['size_bytes'])} free{full}")
    output.say(f"topics     {told['topics']:,} with {counted(told['records'], 'record')}")
    output.say(f"consumers  {told['consumers']:,}, at most {counted(told['worst_lag'], 'record')} behind")
    output.say(f"server     {told['version']}, up for {_long(told['uptime_ms'])}")
    for text in told["attention"]:
        output.say(f"attention  {text}", "bold red")
    if not told["attention"]:
        output.say("ok         nothing needs attention", "green")
