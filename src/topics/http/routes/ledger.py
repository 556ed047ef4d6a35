"""Why seqs are missing: the ranges, a page at a time, or a picture; of the whole topic or a part of it."""

from typing import Any

from topics.http.admission.auth import READ
from topics.http.exchange import Exchange
from topics.http.routes.fields import cursor_after, page_size, seq_at_start_of_page
from topics.http.routes.service import Service, answer, in_turns
from topics.http.routing import Route
from topics.log import KIND_NAMES, MAX_BUCKETS, Topic, bucket_steps, exact, range_steps
from topics.values import invalid


class LedgerRoutes:
    def __init__(self, service: Service) -> None:
        self._service = service

    def routes(self) -> list[Route]:
        query = ("buckets", "from", "to", "times", "page_size", "cursor")
        return [Route("GET", "/v0/topics/:topic/ledger", self.show, scopes=READ, query=query)]

    async def show(self, exchange: Exchange) -> None:
        buckets = exchange.query("buckets")
        count = None if buckets is None else _count(buckets)
        after = seq_at_start_of_page(exchange)
        first, last = exchange.query_number("from") or 0, exchange.query_number("to")
        await self._service.admission.copied(exchange.name)
        topic = self._service.current_topic(exchange)
        if count is None:
            after = max(after, topic.seq_base - 1, first - 1)
            told = await _ranges(topic, after, topic.head if last is None else last, page_size(exchange))
            if exchange.query_flag("times", False):
                for one in told["ranges"]:
                    one |= _times(topic, one["from"], one["to"])
        else:
            told = await _buckets(topic, count, first, topic.head if last is None else last)
        about = {
            "topic": topic.name,
            "epoch": topic.id,
            "head_seq": topic.head,
            "earliest_seq": topic.floor,
        }
        answer(exchange, about | told)


async def _ranges(topic: Topic, after: int, upto: int, size: int) -> dict[str, Any]:
    found = await in_turns(exact(topic, lambda: range_steps(topic, after, size + 1)))
    ranges = [(first, min(last, upto), kind) for first, last, kind in found if first <= upto]
    shown = [{"from": first, "to": last, "kind": KIND_NAMES[kind]} for first, last, kind in ranges[:size]]
    more = {"next_cursor": cursor_after(str(ranges[size - 1][1]))} if len(ranges) > size else {}
    return {"ranges": shown, **more}


def _times(topic: Topic, first: int, last: int) -> dict[str, int]:
    """Return the moments between which they went; only the second one if nothing tells the first."""
    found = None if topic.gone_times is None else topic.gone_times.between(first, last)
    if found is None:
        return {}
    after_ms, by_ms = found
    return {"gone_by_ms": by_ms} | ({"gone_after_ms": after_ms} if after_ms else {})


async def _buckets(topic: Topic, count: int, first: int, last: int) -> dict[str, Any]:
    found = await in_turns(exact(topic, lambda: bucket_steps(topic, count, first, last)))
    return {
        "buckets": [
            {"from": b.first, "to": b.last, "live": b.live, **dict(zip(KIND_NAMES, b.missing, strict=True))}
            for b in found
        ]
    }


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= MAX_BUCKETS):
        raise invalid(f"buckets must be a number from 1 to {MAX_BUCKETS}")
    return int(text)
