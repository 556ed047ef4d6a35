"""Makes the requests of one lane, right and wrong, and remembers what their answers said."""

from __future__ import annotations

import gzip
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.compare import bodies
from tests.compare.bodies import AppendBody, compact, encoded
from tests.compare.servers import MASTER, Answer, Request

JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"
_WRONG_SEQS = ("-1", "1.5", '"1"', "null", "true", "[]", "1e999", "NaN", "01", "1e3", "-0")
_LARGE_SEQS = (2**31, 2**53, 2**63 - 2, 2**63 - 1, 2**63, 2**64, 10**30)


@dataclass
class Burst:
    """Requests that are sent without waiting for answers, after a pause."""

    requests: list[Request]
    pause_s: float = 0.0


@dataclass
class Maker:
    """Makes the requests of one lane."""

    random: Random
    name: str
    has_keys: bool
    # Whether some requests have keys of the server that may not do everything.
    restricts_keys: bool = True
    # Whether topics may have caps.
    has_caps: bool = True
    # The highest seq that was seen of each topic, and its epoch.
    heads: dict[str, int] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    _number: int = 0
    style: int = 0
    # Appends with keys, to be sent again.
    _keyed: list[Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.style = self.random.randrange(5)

    def topic(self, suffix: str) -> str:
        """Some names begin with the prefix that restricted keys may use."""
        self.heads[f"{self.name}-{suffix}"] = 0
        return f"{self.name}-{suffix}"

    def new_key(self) -> str:
        self._number += 1
        return f"u{self._number:06d}"

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    # --- heads ----------------------------------------------------------------------------------------------

    def request(
        self,
        method: str,
        target: str,
        body: bytes | None,
        *features: str,
        content_type: str | None = JSON,
        headers: tuple[str, ...] = (),
        encode: bool = True,
    ) -> Request:
        named = list(features)
        if body is not None and encode and self.chance(0.05):
            if self.chance(0.6):
                body = gzip.compress(body, 1, mtime=0)
                headers = (*headers, "Content-Encoding: gzip")
                named.append("gzip body")
            elif features[0].startswith(("append", "diff")):
                # Where a request is refused before its body is read, the server ends the connection, if the
                # body has not come yet: with a key that may do everything, this does not happen.
                named.append("chunked body")
                data = chunked(self.random, body)
                return self._finish(method, target, data, named, content_type, headers, -1)
        return self._finish(
            method, target, body or b"", named, content_type, headers, None if body is None else len(body)
        )

    def _finish(
        self,
        method: str,
        target: str,
        body: bytes,
        features: list[str],
        content_type: str | None,
        headers: tuple[str, ...],
        length: int | None,
    ) -> Request:
        """`length` is None without a body, and -1 for one in chunks."""
        self._number += 1
        lines = ["Host: localhost"]
        if length is not None:
            if content_type is not None:
                lines.append(f"Content-Type: {content_type}")
            lines.append("Transfer-Encoding: chunked" if length < 0 else f"Content-Length: {length}")
        style = self.random.randrange(5) if self.style == 4 else self.style
        if style == 1:
            lines += ["User-Agent: compare/1.0", "Accept: */*", "Connection: keep-alive"]
        elif style == 2:
            lines.append(f"X-Request-Id: {self.name}-{self._number}")
            features.append("head that differs each time")
        elif style == 3:
            lines = [line.lower() for line in lines]
            lines.insert(0, f"x-note: {self.random.randrange(3)}")
        if self.has_keys:
            is_chunked = length is not None and length < 0
            key, feature = (MASTER, "API key: all rights") if is_chunked else self._api_key()
            if key is not None:
                lines.insert(self.random.choice((1, len(lines))), f"Authorization: Bearer {key}")
            features.append(feature)
        head = "\r\n".join([f"{method} {target} HTTP/1.1", *lines, *headers]) + "\r\n\r\n"
        data = head.encode("utf-8", "surrogateescape") + body
        return Request(data, tuple(dict.fromkeys(features)), head_only=method == "HEAD")

    def _api_key(self) -> tuple[str | None, str]:
        if not self.restricts_keys or self.chance(0.9):
            return MASTER, "API key: all rights"
        restricted = ("reader", "writer", "eraser", "partial", "all-of-p", "partial", "all-of-p")
        key = self.random.choice((None, "nobody", *restricted))
        if key in restricted:
            return key, f"API key: {key}"
        return key, "API key: missing or unknown"

    # --- appends --------------------------------------------------------------------------------------------

    def append(self, topic: str) -> Request:
        random = self.random
        if self._keyed and self.chance(0.06):
            again = random.choice(self._keyed)
            return Request(again.data, (*again.features, "append sent again, the same bytes"))
        made = bodies.append_body(random)
        query = self._options(made)
        headers = self._key(made)
        text = made.text(random)
        request = self.request(
            "POST", f"/v0/topics/{topic}{query}", encoded(text), *made.features, headers=headers
        )
        if any("key" in feature for feature in made.features):
            self._keyed = [*self._keyed[-5:], request]
        return request

    def plain_append(self, topic: str) -> Request:
        """A single record without anything else, as most requests are."""
        value = self.random.choice(("1", "null", '"text"', f'{{"n":{self.random.randrange(1000)}}}'))
        body = b'{"records":[{"data":%b}]}' % value.encode()
        return self.request(
            "POST", f"/v0/topics/{topic}", body, "append: data alone", "compact", encode=False
        )

    def _options(self, made: AppendBody) -> str:
        """Add members to the body, and return the query."""
        random, query = self.random, []
        if self.chance(0.08):
            made.features.append("node of the batch")
            made.add(random, '"node":' + bodies.node(random, made.features))
        if self.chance(0.07):
            value = random.choice(("false", "false", "true", "null", "1"))
            made.features.append(f"create: {value}")
            made.add(random, f'"create":{value}')
        if self.chance(0.06):
            made.features.append("config in the append")
            made.add(random, '"config":' + compact(self.config()))
        if self.chance(0.08):
            value = random.choice(("false", "false", "true", "0"))
            made.features.append(f"return_seqs: {value} in the body")
            made.add(random, f'"return_seqs":{value}')
        if self.chance(0.06):
            made.features.append("disable_backpressure")
            made.add(random, f'"disable_backpressure":{random.choice(("true", "false", "1"))}')
        if self.chance(0.08):
            value = random.choice(("false", "false", "0", "true", "1", "maybe", ""))
            made.features.append("return_seqs in the query")
            query.append(f"return_seqs={value}")
        if self.chance(0.01):
            made.features.append("wrong query")
            query.append(random.choice(("return_seqs=false", "dry_run=true", "x", "create=false", "%zz=1")))
        return "?" + "&".join(query) if query else ""

    def _key(self, made: AppendBody) -> tuple[str, ...]:
        """Add a key to the body, and return the header with one."""
        random, luck = self.random, self.random.random()
        if luck > 0.34:
            return ()
        usual = f"k{random.randrange(12)}" if self.chance(0.6) else f"u{self._number}"
        headers: tuple[str, ...] = ()
        if luck < 0.18 or luck > 0.32:
            made.features.append("key in the header")
            headers = (f"Idempotency-Key: {self._header_key(usual, made.features)}",)
        if luck >= 0.18:
            is_before = self.chance(0.5)
            made.features.append(f"key in the body, {'before' if is_before else 'after'} records")
            other = usual if self.chance(0.5) else usual + "x"
            key = bodies.body_key(random, made.features, other if headers else usual)
            made.add(random, f'"idempotency_key":{key}', is_before=is_before)
        if headers and luck >= 0.18:
            made.features.append("keys in header and body")
        return headers

    def _header_key(self, usual: str, features: list[str]) -> str:
        luck = self.random.random()
        if luck < 0.85:
            return usual
        features.append("odd key in the header")
        return self.random.choice(
            (
                "",
                "  ",
                usual + "  ",
                "a b",
                '"quoted"',
                "é",
                "\udcff",
                "k" * 255,
                "k" * 256,
                "k" * 257,
                "é" * 128,
                "é" * 129,
                "k" * 1000,
            )
        )

    def config(self) -> dict[str, Any]:
        random = self.random
        found: dict[str, Any] = {}
        if self.chance(0.25):
            found["durability"] = random.choice(
                ("ephemeral", "memory", "disk", "disk", "fsync", "fsync", "disk", "disk")
            )
        if self.chance(0.2):
            found["ttl_ms"] = random.choice((3_600_000, 86_400_000))
        if self.has_caps and self.chance(0.3):
            found["cap_records"] = random.choice((1, 2, 3, 5, 10, 50, 1000))
        if self.has_caps and self.chance(0.15):
            found["cap_bytes"] = random.choice((10, 60, 200, 1000, 100_000))
        if self.has_caps and self.chance(0.3):
            found["discard"] = random.choice(("old", "reject"))
        if self.chance(0.1):
            found["priority"] = random.choice((-1, 0, 1, 100, 499))
        if self.chance(0.12):
            found["idempotency_window_ms"] = random.choice((0, 0, 600_000))
        if self.chance(0.05):
            found["dedupe_node"] = self.chance(0.5)
        if self.chance(0.05):
            found["auto_create"] = self.chance(0.5)
        if self.chance(0.03):
            found["durable"] = self.chance(0.5)
        if self.chance(0.03):
            found |= random.choice(
                (
                    {"ttl": 1},
                    {"ttl_ms": -1},
                    {"cap_records": 1.5},
                    {"discard": "new"},
                    {"type": "x"},
                    {"ttl_ms": None},
                )
            )
        return found

    # --- everything else ------------------------------------------------------------------------------------

    def configure(self, topic: str, config: dict[str, Any], feature: str = "topic: PUT") -> Request:
        query = "?dry_run=true" if self.chance(0.03) else ""
        headers = ("If-None-Match: *",) if self.chance(0.03) else ()
        body = encoded(bodies.as_dumps(compact(config), self.random))
        return self.request("PUT", f"/v0/topics/{topic}{query}", body, feature, headers=headers)

    def drop(self, topic: str) -> Request:
        query = self.random.choice(("", "", "", "", "?if_empty=true", "?dry_run=true"))
        return self.request("DELETE", f"/v0/topics/{topic}{query}", None, "topic: DELETE")

    def seq(self, topic: str) -> int:
        head = self.heads.get(topic, 0)
        return self.random.choice((0, head, head + 1, self.random.randrange(head + 3)))

    def _seq_text(self, topic: str) -> str:
        luck = self.random.random()
        if luck < 0.94:
            return str(self.seq(topic))
        if luck < 0.97:
            return str(self.random.choice(_LARGE_SEQS))
        return self.random.choice(_WRONG_SEQS)

    def diff(self, topic: str) -> Request:
        random = self.random
        features, members = ["diff"], []
        if self.chance(0.7):
            members.append('"from_seq":' + self._seq_text(topic))
        if self.chance(0.4):
            members.append(f'"limit":{random.choice((0, 1, 2, 3, 5, 10, 1000, 5000, -1))}')
            features.append("diff with limit")
        if self.chance(0.2):
            members.append('"node":' + random.choice(('"web-1"', '["web-0","web-2"]', "[]", '""', "1")))
            features.append("diff with node")
        if self.chance(0.5):
            members.append(f'"include_tags":{random.choice(("true", "false"))}')
            features.append("diff with include_tags")
        if self.chance(0.2):
            members.append('"include_meta":false')
            features.append("diff without meta")
        if self.chance(0.1):
            members.append(f'"max_batch_bytes":{random.choice((1, 20, 100, 1000))}')
        if self.chance(0.05):
            members.append(f'"epoch":{random.choice((self.epochs.get(topic, 1), 1))}')
        if self.chance(0.03):
            members.append('"wait_ms":1')
        random.shuffle(members)
        body = None if not members and self.chance(0.5) else encoded("{" + ",".join(members) + "}")
        headers = ("Accept-Encoding: gzip",) if self.chance(0.03) else ()
        return self.request("POST", f"/v0/topics/{topic}/diff", body, *features, headers=headers)

    def records(self, topic: str) -> Request:
        random, query = self.random, []
        features = ["records"]
        if self.chance(0.5):
            query.append("from_seq=" + self._seq_text(topic))
        if self.chance(0.4):
            tag = random.choice(("user:*", "user:1", "vip:*", "*", "", "nothing", "%C3%A9:*"))
            query.append(f"tag={tag}")
            features.append("records with tag")
        if self.chance(0.3):
            query.append(f"last={random.choice((0, 1, 2, 5, 2000))}")
        if self.chance(0.3):
            query.append(f"limit={random.choice((0, 1, 3, 10))}")
        if self.chance(0.3):
            query.append("include_tags=true")
        if self.chance(0.2):
            query.append("include_meta=false")
        if self.chance(0.2):
            query.append("node=web-1")
        if self.chance(0.1):
            query.append("since=1000")
        if self.chance(0.05):
            query.append("until=99999999999999")
        target = f"/v0/topics/{topic}/records" + ("?" + "&".join(query) if query else "")
        return self.request("HEAD" if self.chance(0.03) else "GET", target, None, *features)

    def one(self, topic: str) -> Request:
        return self.request(
            "GET", f"/v0/topics/{topic}/records/{self._seq_text(topic)}", None, "single record"
        )

    def state(self, topic: str) -> Request:
        query = self.random.choice(("", "?touch=false"))
        return self.request("GET", f"/v0/topics/{topic}{query}", None, "topic: state")

    def list_topics(self) -> Request:
        detail = self.random.choice(("", "&detail=true", "&page_size=1", "&touch=false"))
        return self.request("GET", f"/v0/topics?prefix={self.name}-{detail}", None, "list of topics")

    def ledger(self, topic: str) -> Request:
        query = self.random.choice(("", "", "?buckets=3", "?buckets=1000", "?page_size=2", "?from=2&to=5"))
        return self.request("GET", f"/v0/topics/{topic}/ledger{query}", None, "ledger")

    def cursor(self, topic: str) -> Request:
        target = f"/v0/topics/{topic}/cursors/{self.random.choice('ab')}"
        if self.chance(0.5):
            return self.request("PUT", target, encoded(f'{{"seq":{self._seq_text(topic)}}}'), "cursor")
        return self.request(self.random.choice(("GET", "DELETE")), target, None, "cursor")

    def delete(self, topic: str) -> Request:
        random, members = self.random, []
        features = ["delete"]
        if self.chance(0.45):
            members.append('"before_seq":' + self._seq_text(topic))
            features.append("delete before a seq")
        if self.chance(0.35):
            match = random.choice(
                (
                    '"user:1"',
                    '"user:*"',
                    '["tag","Eq","vip:2"]',
                    '["tag","Glob","vip:*"]',
                    '"*"',
                    '["tag","x","y"]',
                    "1",
                )
            )
            members.append(f'"match":{match}')
            features.append("delete by tag")
        if self.chance(0.4):
            seqs = ",".join(self._seq_text(topic) for _ in range(random.choice((1, 1, 1, 2, 4, 0))))
            members.append(f'"seqs":[{seqs}]')
            features.append("delete by seqs")
        if self.chance(0.15):
            members.append(f'"dry_run":{random.choice(("true", "true", "false", "1"))}')
            features.append("delete with dry_run")
        body = encoded("{" + ",".join(members) + "}")
        return self.request("POST", f"/v0/topics/{topic}/delete", body, *features)

    def wrong(self, topic: str) -> Request:
        """A request that breaks a rule between the head and the topic."""
        random, luck = self.random, self.random.random()
        target = f"/v0/topics/{topic}"
        right = b'{"records":[{"data":1}]}'
        if luck < 0.6:
            text = random.choice(bodies.WRONG_BODIES)
            if self.chance(0.3):
                text = bodies.as_tabs(text, random)
            return self.request("POST", target, encoded(text), "wrong: body of an append")
        if luck < 0.68:
            kind = random.choice(
                (
                    None,
                    "text/plain",
                    "application/json; charset=utf-8",
                    "application/JSON",
                    "",
                    "application/x",
                    ARROW,
                )
            )
            return self.request("POST", target, right, "wrong: content type", content_type=kind)
        if luck < 0.72:
            encoding = random.choice(("br", "identity", "gzip", "deflate", "gzip, gzip"))
            headers = (f"Content-Encoding: {encoding}",)
            return self.request("POST", target, right, "wrong: encoding", headers=headers, encode=False)
        if luck < 0.76:
            cut = gzip.compress(right, 1, mtime=0)
            headers = ("Content-Encoding: gzip",)
            data = random.choice((cut[:-5], cut + b"x", cut + cut, b"", cut[:3]))
            return self.request("POST", target, data, "wrong: gzip", headers=headers, encode=False)
        if luck < 0.82:
            name = random.choice(("-a", ".a", "a%20b", "%C3%A9", "a" * 255, "a" * 256, "%", "a%2Fb", "~", ""))
            return self.request("POST", f"/v0/topics/{name}", b"{", "wrong: name of a topic")
        if luck < 0.86:
            return self.request("POST", target, None, "wrong: no body")
        if luck < 0.9:
            method = random.choice(("PATCH", "PUT", "OPTIONS", "GET", "HEAD"))
            path = random.choice(
                (f"{target}/diff", f"{target}/delete", f"{target}/nothing", "/v0/nothing", "/v1")
            )
            return self.request(method, path, None, "wrong: path or method")
        if luck < 0.93:
            keys = "Idempotency-Key: a", f"Idempotency-Key: {random.choice('ab')}"
            return self.request("POST", target, right, "two headers with keys", headers=keys)
        fields = random.choice(
            ('"from_seq":', '"limit":', '"epoch":', '"node":', '"include_tags":', '"wait_ms":')
        )
        value = random.choice((*_WRONG_SEQS, *bodies.WRONG_VALUES))
        return self.request(
            "POST", f"{target}/diff", encoded("{" + fields + value + "}"), "wrong: body of a diff"
        )

    def any_of(self, topic: str) -> Request:
        """One of the requests that a lane sends to a log."""
        luck = self.random.random()
        if luck < 0.16:
            return self.plain_append(topic)
        if luck < 0.59:
            return self.append(topic)
        if luck < 0.7:
            return self.diff(topic)
        if luck < 0.75:
            return self.records(topic)
        if luck < 0.79:
            return self.one(topic)
        if luck < 0.82:
            return self.state(topic)
        if luck < 0.85:
            return self.ledger(topic)
        if luck < 0.91:
            return self.delete(topic)
        if luck < 0.96:
            return self.wrong(topic)
        if luck < 0.975:
            return self.configure(topic, self.config(), "topic: PUT again")
        if luck < 0.985:
            return self.drop(topic)
        if luck < 0.993:
            return self.cursor(topic)
        return self.list_topics()

    # --- what is learned ------------------------------------------------------------------------------------

    def learn(self, topic: str, answers: list[Answer]) -> None:
        for answer in answers:
            at = answer.body.rfind(b'"head_seq":')
            if at >= 0 and answer.status in (200, 201):
                self.heads[topic] = _number(answer.body, at + 11)
            at = answer.body.find(b'"epoch":')
            if at >= 0 and answer.status in (200, 201):
                self.epochs[topic] = _number(answer.body, at + 8)

    def final_reads(self, topics: list[str]) -> Burst:
        """What is there at the end. Diffs come first: they wait for the copies of routers."""
        found = []
        for topic in topics:
            body = b'{"limit":1000,"include_tags":true,"max_batch_bytes":8388608}'
            found += [
                self.request("POST", f"/v0/topics/{topic}/diff", body, "final reads", encode=False),
                self.request("GET", f"/v0/topics/{topic}?touch=false", None, "final reads"),
                self.request("GET", f"/v0/topics/{topic}/ledger?page_size=1000", None, "final reads"),
            ]
        return Burst(found)


def _number(text: bytes, start: int) -> int:
    end = start
    while text[end : end + 1].isdigit():
        end += 1
    return int(text[start:end] or b"0")


def chunked(random: Random, body: bytes) -> bytes:
    pieces, at = [], 0
    while at < len(body):
        size = random.choice((1, 5, 100, len(body)))
        piece = body[at : at + size]
        pieces.append(b"%x\r\n%b\r\n" % (len(piece), piece))
        at += size
        if len(pieces) > 20:
            size = len(body)
            rest = body[at:]
            if rest:
                pieces.append(b"%x\r\n%b\r\n" % (len(rest), rest))
            break
    return b"".join(pieces) + b"0\r\n\r\n"


def describe(request: Request) -> str:
    """The request for a report, shortened."""
    text = repr(request.data)[2:-1]
    shown = text if len(text) < 600 else f"{text[:420]} [... {len(request.data)} bytes] {text[-120:]}"
    return f"({', '.join(request.features)})\n      {shown}"
