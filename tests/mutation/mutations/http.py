"""What the wire promises: a request ends where every other party sees it end."""

from __future__ import annotations

from tests.mutation.runner import Mutation

_ALONE = "tests/smuggling/test_alone.py"
_FRAMING = "tests/http/wire/test_framing.py"

MUTATIONS = (
    Mutation(
        "do-without-a-host",
        "HTTP/1.1 without exactly one `Host` is refused, and the connection closed.",
        "http/wire/framing.py",
        "    if host is None:\n        return None\n",
        '    if host is None:\n        return b""\n',
        (_ALONE, _FRAMING),
    ),
    Mutation(
        "believe-any-host",
        "Two `Host`s are refused, and so is one that cannot be a host.",
        "http/wire/framing.py",
        "    if not _HOST.fullmatch(host):\n        return None\n",
        "",
        (_ALONE, _FRAMING),
    ),
    Mutation(
        "unwrap-anything",
        "Any `Transfer-Encoding` but `chunked` is refused.",
        "http/wire/framing.py",
        '    return headers[b"transfer-encoding"].rstrip(b" ").lower() == b"chunked"\n',
        "    return True\n",
        (_ALONE, _FRAMING),
    ),
    Mutation(
        "chunks-of-old",
        "`Transfer-Encoding` in HTTP/1.0 is refused.",
        "http/wire/http1.py",
        'and (version != "1.1" or not is_chunked(headers)):',
        "and not is_chunked(headers):",
        (_ALONE,),
    ),
    Mutation(
        "speak-any-version",
        "HTTP/0.9 and versions that are not HTTP/1 are refused.",
        "http/wire/framing.py",
        "        return data[end - _VERSION_BYTES : end - 1] == _HTTP1 and data[0] > _BLANK\n",
        "        return data[0] > _BLANK\n",
        (_ALONE,),
    ),
    Mutation(
        "skip-what-comes-before-a-request",
        "A line feed alone, a carriage return alone or a blank before a request is refused.",
        "http/wire/framing.py",
        "== _HTTP1 and data[0] > _BLANK\n",
        "== _HTTP1\n",
        (_ALONE, _FRAMING),
    ),
    Mutation(
        "keep-a-body-with-its-connection",
        "A connection that waits for its next request does not hold the body of the last one.",
        "http/wire/body_receiver.py",
        "        self._exchange, self._room = None, _NO_ROOM\n",
        "        self._exchange = None\n",
        ("tests/http/wire/test_body_receiver.py",),
    ),
    Mutation(
        "let-connect-be-any-get",
        "Over HTTP/2, only what opens a WebSocket is answered as if another protocol could be spoken.",
        "http/wire/http2/lane.py",
        'return b"GET" if route is not None and route.websocket else head.method',
        'return b"GET"',
        ("tests/http/wire/http2/test_sockets.py",),
    ),
    Mutation(
        "hear-a-socket-that-does-not-read",
        "Over HTTP/2, too, a WebSocket whose client does not read gets to ask no more questions.",
        "http/wire/http2/lane.py",
        "return self.mode == RAW and (self._reading_paused or bool(self._held_input))",
        "return False",
        ("tests/http/wire/http2/test_sockets.py",),
    ),
    Mutation(
        "take-a-bundle-apart-behind-others",
        "Requests that are sent one behind the other are answered in that order, each with its own.",
        "http/wire/travelling.py",
        "        self._waiting.extendleft(reversed(apart))\n",
        "        self._waiting.extend(apart)\n",
        ("tests/http/wire/test_bundle.py",),
    ),
    Mutation(
        "bundle-what-has-a-key-with-what-has-none",
        "Requests that are sent one behind the other are answered in that order, each with its own.",
        "http/wire/bundle.py",
        "    return same_way and bool(key) is bool(first_key)\n",
        "    return same_way\n",
        ("tests/http/wire/test_bundle.py",),
    ),
    Mutation(
        "hear-all-at-once",
        "A client that says much over a WebSocket in one breath keeps nobody else waiting.",
        "http/wire/websocket.py",
        "            if perf_counter() > ends:\n",
        "            if False:\n",
        ("tests/http/wire/test_websocket.py",),
    ),
    Mutation(
        "answer-one-client-before-all-others",
        "A client that sends many requests in one breath keeps nobody else waiting.",
        "http/wire/pipeline.py",
        "                if perf_counter() > ends and not self.mode:\n",
        "                if False:\n",
        ("tests/http/wire/test_pipeline.py",),
    ),
)
