"""Requests as they should not be: bytes that break every rule between the socket and a handler."""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Callable
from random import Random

from tests.fuzz import corpus

_WORDS = (
    b"0",
    b"-1",
    b"18446744073709551616",
    b"1e999",
    b"NaN",
    b"1.5",
    b"null",
    b"true",
    b'""',
    b"[]",
    b"{}",
)
_ODD = (b"\x00", b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\r", b"\n", b"\r\n", b" ", b":", b"%", b"\\u0000")
_JSON_TARGETS = ("", "/diff", "/delete", "/claim", "/ack", "/nack", "/extend", "/scan", "/cursors/c")


class Malformed:
    """Endless; the same seed makes the same attempts."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._valid = corpus.requests()
        self._upgrade = corpus.upgrade()
        self._kinds: tuple[Callable[[], bytes], ...] = (
            self.valid,
            self.flipped,
            self.flipped,
            self.spliced,
            self.request_line,
            self.headers,
            self.chunks,
            self.wrong_length,
            self.half_body,
            self.pipeline,
            self.compressed,
            self.frames,
            self.text,
            self.numbers,
            self.deep,
            self.noise,
        )

    def attempt(self) -> bytes:
        return self._random.choice(self._kinds)()

    def _one(self) -> bytes:
        return self._random.choice(self._valid)

    def _bytes(self, most: int) -> bytes:
        return self._random.randbytes(self._random.randint(1, most))

    def valid(self) -> bytes:
        return self._one()

    def flipped(self) -> bytes:
        """A few bytes changed, removed or put in."""
        data = bytearray(self._one())
        for _ in range(self._random.randint(1, 6)):
            at = self._random.randrange(len(data) + 1)
            choice = self._random.random()
            if choice < 0.5 and at < len(data):
                data[at] = self._random.randrange(256)
            elif choice < 0.75:
                data[at:at] = self._random.choice(_ODD + _WORDS)
            else:
                del data[at : at + self._random.randint(1, 8)]
        return bytes(data)

    def spliced(self) -> bytes:
        """The beginning of one and the end of another."""
        a, b = self._one(), self._one()
        return a[: self._random.randrange(len(a))] + b[self._random.randrange(len(b)) :]

    def request_line(self) -> bytes:
        method = self._random.choice([b"GET", b"get", b"", b"G\x00T", b"BREW", b"PRI", b"A" * 300, b"POST"])
        target = self._random.choice(
            [
                b"/v0/topics/" + self._bytes(40),
                b"/v0/topics/%ff%fe%00/diff",
                b"/v0/topics/log%2f..%2fdiff",
                b"/" + b"a" * self._random.randint(10_000, 40_000),
                b"*",
                b"http://[::1/v0/health",
                b"//v0//health",
                b"/v0/health?" + b"token=%zz&" * 50,
                b"/v0/topics?cursor=" + self._bytes(20).hex().encode() + b"&page_size=%20",
                b"",
            ]
        )
        version = self._random.choice([b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"HTTP/9", b"http/1.1", b""])
        end = self._random.choice([b"\r\n", b"\n", b"\r", b"\r\n\r\n", b"\r\nHost: x\r\n\r\n"])
        return method + b" " + target + b" " + version + end + b"Host: fuzz\r\n\r\n"

    def headers(self) -> bytes:
        """Too many, too long, repeated, folded, contradicting each other."""
        line = self._one().partition(b"\r\n")[0] + b"\r\n"
        bad = self._random.choice(
            [
                b"".join(b"X-%d: %d\r\n" % (n, n) for n in range(self._random.randint(1, 3000))),
                b"X: " + b"a" * self._random.randint(1000, 200_000) + b"\r\n",
                b"no colon\r\n",
                b": empty\r\n",
                b"X: a\r\n folded\r\n",
                b"X\x00Y: 1\r\n",
                b"Content-Length: 3\r\nContent-Length: 4\r\n",
                b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
                b"Content-Length: -5\r\n",
                b"Content-Length: 99999999999999999999999\r\n",
                b"Content-Length: 1e3\r\n",
                b"Transfer-Encoding: gzip, chunked\r\n",
                b"Transfer-Encoding: nonsense\r\n",
                b"Expect: 100-continue\r\nContent-Length: 10\r\n",
                b"Expect: miracles\r\n",
                b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk\r\n",
                b"Authorization: Bearer " + self._bytes(60).replace(b"\n", b"") + b"\r\n",
                b"Authorization: Basic eA==\r\n",
                b"Last-Event-ID: " + self._bytes(30).hex().encode() + b"\r\n",
                b"Accept: \xff\xff\r\n",
                b"Content-Type: application/json; charset=\xff\r\nContent-Encoding: br\r\n",
            ]
        )
        return line + b"Host: fuzz\r\n" + bad + b"\r\n" + self._bytes(20)

    def _post(self, suffix: str, body: bytes, *headers: tuple[str, str]) -> bytes:
        target = f"/v0/topics/{self._random.choice(corpus.TOPICS)}{suffix}"
        method = "PUT" if "cursors" in suffix else "POST"
        return corpus.request(method, target, body, *headers)

    def chunks(self) -> bytes:
        head = corpus.request("POST", "/v0/topics/log", None, ("Transfer-Encoding", "chunked")).replace(
            b"\r\n\r\n", b"\r\nContent-Type: application/json\r\n\r\n"
        )
        good = b'b\r\n{"records":\r\n10\r\n[{"data": 1234}]\r\n1\r\n}\r\n0\r\n\r\n'
        return head + self._random.choice(
            [
                good,
                b"zz\r\n{}\r\n0\r\n\r\n",
                b"ffffffffffffffffff\r\n{}",
                b"-1\r\n{}\r\n",
                b"5\r\n{}\r\n0\r\n\r\n",
                b"2\n{}\n0\n\n",
                b"2;" + b"e" * self._random.randint(1, 200_000) + b"\r\n{}\r\n0\r\n\r\n",
                b"1\r\na\r\n" * self._random.randint(1, 3000) + b"0\r\n\r\n",
                b"0\r\n" + b"T: x\r\n" * self._random.randint(1, 30_000) + b"\r\n",
                b"2\r\n{}\r\n0\r\nTrailer\x00: 1\r\n\r\n",
                good[: self._random.randrange(len(good))],
                self._bytes(50),
            ]
        )

    def wrong_length(self) -> bytes:
        """The length says one thing, the body another."""
        body = json.dumps({"records": [{"data": self._random.randint(0, 9)}]}).encode()
        said = max(len(body) + self._random.randint(-5, 40), 0)
        whole = self._post("", body)
        return whole.replace(b"Content-Length: %d" % len(body), b"Content-Length: %d" % said)

    def half_body(self) -> bytes:
        data = self._one()
        return data[: self._random.randint(1, len(data))]

    def pipeline(self) -> bytes:
        several = [self._one() for _ in range(self._random.randint(2, 20))]
        if self._random.random() < 0.5:
            several.insert(self._random.randrange(len(several)), self._bytes(80))
        return b"".join(several)

    def compressed(self) -> bytes:
        zeros = self._random.choice([1000, 100_000, 3_000_000])
        whole = gzip.compress(b'{"records":[{"data":"' + b"a" * zeros + b'"}]}', 1, mtime=0)
        body = self._random.choice(
            [
                whole,
                whole[: self._random.randrange(len(whole))],
                whole + self._bytes(20),
                whole * 2,
                self._bytes(100),
                gzip.compress(gzip.compress(b"{}", mtime=0), mtime=0),
                b"",
            ]
        )
        encoding = self._random.choice(["gzip", "x-gzip", "GZIP ", "gzip, gzip", "deflate", "br"])
        return self._post(self._random.choice(_JSON_TARGETS), body, ("Content-Encoding", encoding))

    def frames(self) -> bytes:
        """An upgrade, then frames of which some are wrong."""
        said = [
            b'{"op":"subscribe","topic":"log"}',
            b'{"op":"subscribe","topics":{"log":{"from_seq":-1}}}',
            b'{"op":"publish","topic":"log","records":[{"data":1}],"request_id":[1,{"a":2}]}',
            b'{"op":"unsubscribe","topics":["log",1]}',
            b'{"op":"ping","request_id":null}',
            b'{"op":7}',
            b"[1]",
            b"{",
            b"\xff\xfe",
            b"[" * 5000,
            self._bytes(200),
        ]
        frames = [
            self._frame(self._random.choice(said), self._random.choice([1, 1, 1, 1, 2, 0, 9, 10, 8, 3, 15]))
            for _ in range(self._random.randint(1, 8))
        ]
        if self._random.random() < 0.3:
            frames.append(self._bytes(60))
        return self._upgrade + b"".join(frames)

    def _frame(self, payload: bytes, opcode: int) -> bytes:
        first = opcode | self._random.choice([0x80, 0x80, 0x80, 0, 0xC0, 0xF0])
        masked = self._random.random() < 0.9
        size = len(payload) + self._random.choice([0, 0, 0, 0, 1, 100_000, -1 if payload else 0])
        head = bytes([first])
        flag = 0x80 if masked else 0
        if size < 126:
            head += bytes([flag | size])
        elif size < 65536:
            head += bytes([flag | 126]) + struct.pack(">H", size)
        else:
            head += bytes([flag | 127]) + struct.pack(">Q", size)
        # A mask of zeros leaves the payload readable.
        return head + (b"\0\0\0\0" if masked else b"") + payload

    def text(self) -> bytes:
        """JSON whose strings are not text, or are odd text."""
        odd = self._random.choice(
            [*_ODD, b"\\ud800", b"\\uD83D\\uDE00", b"\x7f", b"a" * 300, b"\xf4\x90\x80\x80"]
        )
        body = self._random.choice(
            [
                b'{"records":[{"data":"%b","tag":"%b"}]}',
                b'{"records":[{"data":1,"node":"%b","meta":{"%b":1}}]}',
                b'{"node":"%b","seqs":[1],"lease_ids":["%b"]}',
                b'{"match":"%b","x":"%b"}',
                b'{"idempotency_key":"%b","records":[{"data":0}],"%b":0}',
            ]
        ) % (odd, odd)
        return self._post(self._random.choice(_JSON_TARGETS), body)

    def numbers(self) -> bytes:
        word = self._random.choice(_WORDS)
        names = (
            b"from_seq",
            b"limit",
            b"wait",
            b"max_batch_bytes",
            b"epoch",
            b"before_seq",
            b"max",
            b"lease_ms",
        )
        fields = [b'"%b":%b' % (name, self._random.choice((word, b"1"))) for name in names]
        fields += [b'"seqs":[%b]' % word, b'"seq":%b' % word, b'"delay_ms":%b' % word, b'"node":"n"']
        fields.append(b'"records":[{"data":%b}]' % word)
        return self._post(self._random.choice(_JSON_TARGETS), b"{%b}" % b",".join(fields))

    def deep(self) -> bytes:
        depth = self._random.choice([50, 500, 2000, 100_000])
        nested = self._random.choice([b"[" * depth + b"]" * depth, b'{"a":' * depth + b"1" + b"}" * depth])
        nested = nested[: self._random.choice([len(nested), depth])]
        body = self._random.choice([b"%b", b'{"records":[{"data":%b}]}', b'{"match":%b}', b'{"meta":%b}'])
        return self._post(self._random.choice(_JSON_TARGETS), body % nested)

    def noise(self) -> bytes:
        return self._bytes(self._random.choice([1, 10, 500, 20_000]))
