"""Requests whose end two parties may see in different places, and requests that look like them and are sound.

Behind each of the first kind comes another request, the smuggled one. If a server takes the bytes before it
for a whole request, it carries out what was never asked. The kinds are those that are known to the public:
CL.TE, TE.CL, TE.TE and CL.0, where a length and an encoding, or two of them, contradict each other; encodings
that one party knows and the other does not; line endings, folded lines and control characters; sizes of
chunks; hosts, versions and targets.
"""

from __future__ import annotations

from dataclasses import dataclass

EVIL = b'{"records":[{"data":"never asked for"}]}'
SMUGGLED_TOPIC = "smuggled"
SMUGGLED = (
    b"POST /v0/topics/smuggled HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(EVIL), EVIL)
)
LINE = b"POST /v0/topics/t/diff HTTP/1.1\r\n"
HOST = b"Host: x\r\n"
JSON = b"Content-Type: application/json\r\n"
TE = b"Transfer-Encoding: chunked\r\n"
CHUNKED_BODY = b"2\r\n{}\r\n0\r\n\r\n"
END = b"\r\n"


@dataclass(frozen=True)
class Case:
    name: str
    data: bytes
    # What a server that is alone answers. Refused ones get 400 and nothing after it.
    statuses: tuple[int, ...] = (400,)

    @property
    def is_refused(self) -> bool:
        return self.statuses == (400,)


def _post(headers: bytes, body: bytes = b"") -> bytes:
    return LINE + HOST + JSON + headers + END + body


def _get(headers: bytes, line: bytes = b"GET /v0/health HTTP/1.1\r\n") -> bytes:
    return line + headers + END


def _chunks(body: bytes) -> bytes:
    return _post(TE, body)


def _te(value: bytes, name: bytes = b"Transfer-Encoding") -> bytes:
    return _post(name + b":" + value + END, CHUNKED_BODY)


_LENGTHS: dict[str, bytes] = {
    "CL.TE: the length covers what the chunks do not": _post(b"Content-Length: 6\r\n" + TE, b"0\r\n\r\nG"),
    "CL.TE: the length first": _post(b"Content-Length: 11\r\n" + TE, CHUNKED_BODY),
    "TE.CL: the chunks first": _post(TE + b"Content-Length: 3\r\n", CHUNKED_BODY),
    "a length of 0 beside chunks": _post(b"Content-Length: 0\r\n" + TE, CHUNKED_BODY),
    "lengths beside chunks around a header": _post(
        b"Content-Length: 3\r\nX: y\r\n" + TE + b"X: z\r\n", CHUNKED_BODY
    ),
    "two lengths that differ": _post(b"Content-Length: 2\r\nContent-Length: 3\r\n", b"{}"),
    "two lengths that differ, the larger first": _post(b"Content-Length: 30\r\nContent-Length: 2\r\n", b"{}"),
    "two lengths in one header": _post(b"Content-Length: 2, 3\r\n", b"{}"),
    "the same length twice in one header": _post(b"Content-Length: 2, 2\r\n", b"{}"),
    "a length with a sign": _post(b"Content-Length: +2\r\n", b"{}"),
    "a negative length": _post(b"Content-Length: -2\r\n", b"{}"),
    "a hexadecimal length": _post(b"Content-Length: 0x2\r\n", b"{}"),
    "a length with an underscore": _post(b"Content-Length: 1_0\r\n", b"{}"),
    "a length with a blank in it": _post(b"Content-Length: 2 0\r\n", b"{}"),
    "a length with a letter behind it": _post(b"Content-Length: 2a\r\n", b"{}"),
    "a length in other digits": _post("Content-Length: ٢\r\n".encode(), b"{}"),
    "a fraction as length": _post(b"Content-Length: 2.0\r\n", b"{}"),
    "no length in the header": _post(b"Content-Length:\r\n", b"{}"),
    "a length above 64 bits": _post(b"Content-Length: 18446744073709551618\r\n", b"{}"),
    "a length that is folded": _post(b"Content-Length:\r\n 2\r\n", b"{}"),
    "CL.0: a body where none is expected, and two lengths": _get(
        HOST + b"Content-Length: 0\r\nContent-Length: %d\r\n" % len(SMUGGLED)
    ),
}

_ENCODINGS: dict[str, bytes] = {
    "TE.TE: chunked twice": _te(b" chunked, chunked"),
    "TE.TE: chunked, then identity": _te(b" chunked, identity"),
    "TE.TE: identity, then chunked": _te(b" identity, chunked"),
    "TE.TE: gzip, then chunked": _te(b" gzip, chunked"),
    "TE.TE: a header each": _post(TE + b"Transfer-Encoding: identity\r\n", CHUNKED_BODY),
    "TE.TE: a header each, chunked last": _post(b"Transfer-Encoding: x\r\n" + TE, CHUNKED_BODY),
    "TE.TE: chunked in two headers": _post(TE + TE, CHUNKED_BODY),
    "TE.TE: another case, another header": _post(TE + b"transfer-encoding: cow\r\n", CHUNKED_BODY),
    "xchunked": _te(b" xchunked"),
    "chunkedx": _te(b" chunkedx"),
    "chunked in quotes": _te(b' "chunked"'),
    "chunked with a parameter": _te(b" chunked;q=1"),
    "chunked behind a comma": _te(b" ,chunked"),
    "chunked before a comma": _te(b" chunked,"),
    "chunked behind a vertical tab": _te(b" \x0bchunked"),
    "chunked before a form feed": _te(b" chunked\x0c"),
    "chunked before a NUL": _te(b" chunked\x00"),
    "chunked behind a no-break space": _te(b" \xa0chunked"),
    "chunked that is folded": _te(b"\r\n chunked"),
    "chunked that is folded with a tab": _te(b"\r\n\tchunked"),
    "chunked before a bare CR": _te(b" chunked\rX: y"),
    "chunked with a Kelvin sign": _te(" chun\N{KELVIN SIGN}ed".encode()),
    "an empty encoding": _te(b""),
    "identity": _post(b"Transfer-Encoding: identity\r\nContent-Length: 2\r\n", b"{}"),
    "gzip": _post(b"Transfer-Encoding: gzip\r\n", b"{}"),
    "a blank before the colon": _te(b" chunked", b"Transfer-Encoding "),
    "a tab before the colon": _te(b" chunked", b"Transfer-Encoding\t"),
    "a blank before the name": _te(b" chunked", b" Transfer-Encoding"),
    "chunks in HTTP/1.0": LINE.replace(b"1.1", b"1.0") + HOST + JSON + TE + END + CHUNKED_BODY,
    "chunks in HTTP/1.0 that is to go on": (
        LINE.replace(b"1.1", b"1.0") + HOST + JSON + b"Connection: keep-alive\r\n" + TE + END + CHUNKED_BODY
    ),
    "chunks with an upgrade, wrapped twice": _post(
        b"Connection: upgrade\r\nUpgrade: x\r\nTransfer-Encoding: gzip, chunked\r\n", CHUNKED_BODY
    ),
}

_LINES: dict[str, bytes] = {
    "bare LF everywhere": b"GET /v0/health HTTP/1.1\nHost: x\n\n",
    "bare LF behind the request line": b"GET /v0/health HTTP/1.1\nHost: x\r\n\r\n",
    "bare LF behind a header": b"GET /v0/health HTTP/1.1\r\nHost: x\nX: y\r\n\r\n",
    "bare LF behind the head": b"GET /v0/health HTTP/1.1\r\nHost: x\r\n\n",
    "bare LF between header and head": b"GET /v0/health HTTP/1.1\r\nHost: x\n\r\n",
    "bare LF before the request": b"\nGET /v0/health HTTP/1.1\r\nHost: x\r\n\r\n",
    "bare LF behind an empty line": b"\r\n\nGET /v0/health HTTP/1.1\r\nHost: x\r\n\r\n",
    "bare CR before the request": b"\rGET /v0/health HTTP/1.1\r\nHost: x\r\n\r\n",
    "bare CR in a value": _get(HOST + b"X: a\rY: b\r\n"),
    "bare CR behind the request line": b"GET /v0/health HTTP/1.1\rHost: x\r\n\r\n",
    "CR CR LF": b"GET /v0/health HTTP/1.1\r\nHost: x\r\r\n\r\n",
    "a folded header": _get(HOST + b"X: a\r\n b\r\n"),
    "a folded first header": b"GET /v0/health HTTP/1.1\r\n Host: x\r\n\r\n",
    "a blank before the colon of any header": _get(HOST + b"X : y\r\n"),
    "a blank before the colon of Host": _get(b"Host : x\r\n"),
    "a blank in a name": _get(HOST + b"X Y: z\r\n"),
    "no name": _get(HOST + b": y\r\n"),
    "no colon": _get(HOST + b"X\r\n"),
    "a NUL in a value": _get(HOST + b"X: a\x00b\r\n"),
    "a control character in a value": _get(HOST + b"X: a\x01b\r\n"),
    "an escape in a value": _get(HOST + b"X: a\x1bb\r\n"),
    "DEL in a value": _get(HOST + b"X: a\x7fb\r\n"),
    "a NUL in a name": _get(HOST + b"X\x00: y\r\n"),
    "a control character in a name": _get(HOST + b"X\x01: y\r\n"),
    "a name outside ASCII": _get(HOST + b"X\xff: y\r\n"),
    "a name in brackets": _get(HOST + b"(X): y\r\n"),
}

_STARTS: dict[str, bytes] = {
    "HTTP/0.9": b"GET /v0/health\r\n",
    "HTTP/0.9 with an empty line": b"GET /v0/health\r\n\r\n",
    "HTTP/0.9 that says so": _get(HOST, b"GET /v0/health HTTP/0.9\r\n"),
    "HTTP/0.9 that says so and is to go on": _get(
        HOST + b"Connection: keep-alive\r\n", b"GET /v0/health HTTP/0.9\r\n"
    ),
    "HTTP/1.2": _get(HOST, b"GET /v0/health HTTP/1.2\r\n"),
    "HTTP/1.10": _get(HOST, b"GET /v0/health HTTP/1.10\r\n"),
    "HTTP/2.0 in a line": _get(HOST, b"GET /v0/health HTTP/2.0\r\n"),
    "HTTP/2.0 that is to go on": _get(HOST + b"Connection: keep-alive\r\n", b"GET /v0/health HTTP/2.0\r\n"),
    "another protocol": _get(HOST, b"GET /v0/health RTSP/1.0\r\n"),
    "a protocol in small letters": _get(HOST, b"GET /v0/health http/1.1\r\n"),
    "a method in small letters": _get(HOST, b"get /v0/health HTTP/1.1\r\n"),
    "a blank before the method": _get(HOST, b" GET /v0/health HTTP/1.1\r\n"),
    "a tab behind the method": _get(HOST, b"GET\t/v0/health HTTP/1.1\r\n"),
    "two blanks behind the method": _get(HOST, b"GET  /v0/health HTTP/1.1\r\n"),
    "two blanks behind the target": _get(HOST, b"GET /v0/health  HTTP/1.1\r\n"),
    "a blank behind the version": _get(HOST, b"GET /v0/health HTTP/1.1 \r\n"),
    "a tab in the target": _get(HOST, b"GET /v0/he\talth HTTP/1.1\r\n"),
    "a NUL in the target": _get(HOST, b"GET /v0/health\x00 HTTP/1.1\r\n"),
    "a control character in the target": _get(HOST, b"GET /v0/health\x01 HTTP/1.1\r\n"),
    "a target outside ASCII": _get(HOST, b"GET /v0/health\xff HTTP/1.1\r\n"),
    "a second request in the target": _get(HOST, b"GET /v0/health HTTP/1.1 GET / HTTP/1.1\r\n"),
    "no Host": _get(b"X: y\r\n"),
    "two Hosts": _get(HOST + b"Host: y\r\n"),
    "the same Host twice": _get(HOST + HOST),
    "a second Host in other letters": _get(HOST + b"hOST: x\r\n"),
    "a Host with a blank in it": _get(b"Host: x y\r\n"),
    "a Host with a path": _get(b"Host: x/y\r\n"),
    "a Host with a user": _get(b"Host: u@x\r\n"),
    "two Hosts in HTTP/1.0": _get(HOST + b"Host: y\r\n", b"GET /v0/health HTTP/1.0\r\n"),
    "a whole URL without a Host header": _get(b"X: y\r\n", b"GET http://x/v0/health HTTP/1.1\r\n"),
    "a whole URL with a user": _get(HOST, b"GET http://u@x/v0/health HTTP/1.1\r\n"),
    "a whole URL without a host": _get(HOST, b"GET http:///v0/health HTTP/1.1\r\n"),
}

_CHUNKS: dict[str, bytes] = {
    "bare LF behind a size": _chunks(b"2\n{}\r\n0\r\n\r\n"),
    "bare LF behind a chunk": _chunks(b"2\r\n{}\n0\r\n\r\n"),
    "bare LF behind the last size": _chunks(b"2\r\n{}\r\n0\n\r\n"),
    "bare LF at the end": _chunks(b"2\r\n{}\r\n0\r\n\n"),
    "bare LF in an extension": _chunks(b"2;a\nb\r\n{}\r\n0\r\n\r\n"),
    "bare LF in a quoted extension": _chunks(b'2;a="\n"\r\n{}\r\n0\r\n\r\n'),
    "bare CR behind a size": _chunks(b"2\r{}\r\n0\r\n\r\n"),
    "CR CR LF behind an extension": _chunks(b"2;a\r\r\n{}\r\n0\r\n\r\n"),
    "a NUL in an extension": _chunks(b"2;a\x00\r\n{}\r\n0\r\n\r\n"),
    "no size": _chunks(b"\r\n{}\r\n0\r\n\r\n"),
    "a size with 0x": _chunks(b"0x2\r\n{}\r\n0\r\n\r\n"),
    "a size with a sign": _chunks(b"+2\r\n{}\r\n0\r\n\r\n"),
    "a negative size": _chunks(b"-2\r\n{}\r\n0\r\n\r\n"),
    "a blank before a size": _chunks(b" 2\r\n{}\r\n0\r\n\r\n"),
    "a blank behind a size": _chunks(b"2 \r\n{}\r\n0\r\n\r\n"),
    "an underscore in a size": _chunks(b"0_2\r\n{}\r\n0\r\n\r\n"),
    "a size above 64 bits": _chunks(b"10000000000000002\r\n{}\r\n0\r\n\r\n"),
    "a chunk longer than its size": _chunks(b"1\r\n{}\r\n0\r\n\r\n"),
    "a chunk shorter than its size": _chunks(b"4\r\n{}\r\n0\r\n\r\nXX"),
    "a length among the trailers": _chunks(b"2\r\n{}\r\n0\r\nContent-Length: 5\r\n\r\n"),
    "an encoding among the trailers": _chunks(b"2\r\n{}\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n"),
    "a NUL among the trailers": _chunks(b"2\r\n{}\r\n0\r\nX: \x00\r\n\r\n"),
    "a folded trailer": _chunks(b"2\r\n{}\r\n0\r\nX: a\r\n b\r\n\r\n"),
    "bare LF behind a trailer": _chunks(b"2\r\n{}\r\n0\r\nX: a\n\r\n"),
}

REFUSED = [
    Case(name, data + SMUGGLED)
    for table in (_LENGTHS, _ENCODINGS, _LINES, _STARTS, _CHUNKS)
    for name, data in table.items()
]

# An absent topic: the request was understood.
_FOUND_NOTHING = 404
ACCEPTED = [
    Case("a length", _post(b"Content-Length: 2\r\n", b"{}"), (_FOUND_NOTHING,)),
    Case("a length with blanks around it", _post(b"Content-Length:\t 2 \t\r\n", b"{}"), (_FOUND_NOTHING,)),
    Case("a length with zeros before it", _post(b"Content-Length: 002\r\n", b"{}"), (_FOUND_NOTHING,)),
    Case("chunks", _chunks(CHUNKED_BODY), (_FOUND_NOTHING,)),
    Case("chunks in other letters", _te(b" ChUnKeD"), (_FOUND_NOTHING,)),
    Case("chunks without a blank", _te(b"chunked"), (_FOUND_NOTHING,)),
    Case("chunks with blanks around it", _te(b" \t chunked  "), (_FOUND_NOTHING,)),
    Case("chunks with extensions", _chunks(b'2;a=b;c="d"\r\n{}\r\n0;e\r\n\r\n'), (_FOUND_NOTHING,)),
    Case("chunks with zeros before their sizes", _chunks(b"0002\r\n{}\r\n000\r\n\r\n"), (_FOUND_NOTHING,)),
    Case("chunks with trailers", _chunks(b"2\r\n{}\r\n0\r\nX: y\r\n\r\n"), (_FOUND_NOTHING,)),
    Case("no body", _get(HOST), (200,)),
    Case("empty lines before the request", b"\r\n\r\n" + _get(HOST), (200,)),
    Case("empty lines between requests", _get(HOST) + b"\r\n" + _get(HOST), (200, 200)),
    Case("requests right behind each other", _get(HOST) + _get(HOST) + _get(HOST), (200, 200, 200)),
    Case("a value with a tab in it", _get(HOST + b"X: a\tb\r\n"), (200,)),
    Case("a value outside ASCII", _get(HOST + b"X: \xe4\r\n"), (200,)),
    Case("an empty value", _get(HOST + b"X:\r\n"), (200,)),
    Case("a Host with a port", _get(b"Host: x:4000\r\n"), (200,)),
    Case("a Host in brackets", _get(b"Host: [::1]:4000\r\n"), (200,)),
    Case("a Host with blanks around it", _get(b"Host: \t x \t\r\n"), (200,)),
    Case("a Host with an underscore", _get(b"Host: my_service\r\n"), (200,)),
    Case("HTTP/1.0 without a Host", _get(b"", b"GET /v0/health HTTP/1.0\r\n"), (200,)),
    Case("a whole URL", _get(HOST, b"GET http://x/v0/health HTTP/1.1\r\n"), (200,)),
    Case("a method that none has", _get(HOST, b"BREW /v0/health HTTP/1.1\r\n"), (405,)),
]
