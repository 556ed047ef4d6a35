"""From a request to its handler, for HTTP/1.1 and HTTP/2."""

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from topics.codec import LARGE_BYTES
from topics.core import ApiError, NotDecoded
from topics.http.admission.admit import admit, require_body_type, too_large
from topics.http.admission.callers import Preflight
from topics.http.request_body import Gunzip, is_compressed, refuse_unread, shrink
from topics.http.response_heads import JSON

if TYPE_CHECKING:
    from topics.http.context import WireContext
    from topics.http.exchange import Exchange
    from topics.http.routing import Route

# Comparing byte values is four times faster than comparing one-byte strings.
_QUERY = ord("?")


def dispatch(context: "WireContext", exchange: "Exchange") -> None:
    """Admit a request and, if its body is complete, handle it."""
    known = exchange.known
    try:
        if known is None:
            if exchange.refusal is not None:
                exchange.fail(*exchange.refusal)
                return
            admit(context, exchange)
            if exchange.received > context.max_body_bytes:
                raise too_large(context.max_body_bytes)
            if not exchange.complete:
                if b"expect" in exchange.headers:
                    exchange.send_continue()
                return
        else:
            # The head was admitted before: only the checks that depend on the moment remain.
            if known.key is not None:
                exchange.take_place(context.settings.max_inflight_per_key)
            if not context.readiness.open:
                context.readiness.check_room()
    except Preflight as asked:
        exchange.reply_unrouted(204, asked.headers)
        return
    except Exception as error:
        exchange.fail_with(error)
        return
    handle(context, exchange)


def handle(context: "WireContext", exchange: "Exchange") -> None:
    """Call the handler of an admitted request whose body is complete."""
    route, known = exchange.route, exchange.known
    assert route is not None
    if context.readiness.recovering and not route.always_open:
        _handle_later(context, exchange)
        return
    started = exchange.started or exchange.start()
    try:
        # Everything about a known head but the size of the body was looked at before.
        if known is None or not known.is_plain or len(exchange.body) > LARGE_BYTES:
            _handle_carefully(context, exchange, route)
        elif route.enter is not None:
            # A plain request of a route without a decoder needs nothing but its handler.
            work: Callable[[Any], Any] = route.handler if route.decoder is None else _call
            route.enter(exchange, exchange.name, len(exchange.body), work)
        else:
            _call(exchange)
    except Exception as error:
        exchange.fail_with(error)
    held_s = perf_counter() - started
    if held_s > route.holds.longest_s:
        route.holds.note(held_s)


def _handle_carefully(context: "WireContext", exchange: "Exchange", route: "Route") -> None:
    """Look at the query and the type of the body, and call the handler in the way that the body needs."""
    if _QUERY in exchange.target and exchange.known is None:
        exchange.note_query()
    body = exchange.body
    if route.takes_body:
        headers = exchange.headers
        if headers.get(b"content-type") != JSON or not body or b"content-encoding" in headers:
            if body and is_compressed(exchange):
                exchange.run(_handle_compressed(context, exchange, route))
                return
            require_body_type(route, exchange)
    elif body and len(body) <= LARGE_BYTES:
        refuse_unread(exchange)
    if len(body) > LARGE_BYTES and not route.takes_large:
        exchange.run(_handle_large(exchange, route))
    else:
        _enter(exchange, route)


def _enter(exchange: "Exchange", route: "Route") -> None:
    """Call the handler when the log admits the request."""
    if route.enter is not None and len(exchange.body) <= LARGE_BYTES:
        route.enter(exchange, exchange.name, len(exchange.body), _call)
    else:
        _call(exchange)


def _call(exchange: "Exchange") -> None:
    """Decode the body and call the handler."""
    route = exchange.route
    assert route is not None
    decoder = route.decoder
    if decoder is None:
        work = route.handler(exchange)
    else:
        body = exchange.body
        if len(body) > LARGE_BYTES:
            content = None  # the handler decodes it in pieces
        elif body or route.default is None:
            try:
                content = decoder.decode(body)
            except NotDecoded:
                content = exchange.explain(decoder, body)
        else:
            content = route.default
        work = route.handler(exchange, content)
    if work is not None:
        exchange.run(work)


def _handle_later(context: "WireContext", exchange: "Exchange") -> None:
    """Handle it when the recovery is over, or refuse it after a while."""
    try:
        context.readiness.hold(exchange, partial(handle, context))
    except ApiError as refusal:
        exchange.fail(refusal)


async def _handle_large(exchange: "Exchange", route: "Route") -> None:
    await shrink(exchange)
    if not exchange.closed:
        _enter(exchange, route)


async def _handle_compressed(context: "WireContext", exchange: "Exchange", route: "Route") -> None:
    decoder = Gunzip(exchange.body, context.max_body_bytes)
    failure: ApiError | None = None
    try:
        if not decoder.step():
            await context.loop.run_in_executor(None, decoder.finish)
    except ApiError as error:
        failure = error
    # A body that is too large is told before a wrong type, and a wrong type before bad content.
    if failure is not None and failure.code == "payload_too_large":
        raise failure
    require_body_type(route, exchange)
    if failure is not None:
        raise failure
    exchange.replace_body(decoder.result())
    if exchange.closed:
        return
    if len(exchange.body) > context.small_body_bytes:
        exchange.take_room(context.request_room, exchange.received + len(exchange.body))
    if len(exchange.body) > LARGE_BYTES and not route.takes_large:
        await shrink(exchange)
    if not exchange.closed:
        _enter(exchange, route)
