"""The accelerator says what Python says, byte for byte, or leaves it to Python."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from array import array
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripts import accelerate

import topics.values
from tests.support import sanitised
from tests.support.accelerated import NATIVE, WAYS, using
from tests.support.plain_frames import frame_of
from topics.http.routes.records.appends import _seqs, answers_of
from topics.http.routes.records.diff import joined_page
from topics.http.wire.known_requests import KnownRequests
from topics.log.packing import Names
from topics.log.remove.tags import TagIndex, TagMatch
from topics.log.write.append_form import decode_append
from topics.log.write.append_frame import encode_payload
from topics.log.write.append_request import check_append
from topics.log.write.gather import gather
from topics.values import ApiError, accelerator

TS = 1_760_011_200_450


def outcome(body: bytes, key: bytes | None = None) -> Any:
    """All that comes of a write before it is given to the log."""
    noted: list[Any] = []
    try:
        decoded = decode_append(body, lambda misnamed: noted.append(str(misnamed.refusal().detail)))
        request = check_append(decoded, len(body), key)
    except ApiError as error:
        return error.code, error.message, error.detail, noted
    whole = rendered(request.batch)
    together = gather([body])
    if together.batch is not None:
        assert rendered(together.batch) == whole
    return noted, request.create, request.return_seqs, request.idempotency_key, request.config, whole


def in_one(payload: Any, flags: int) -> tuple[bytes, int]:
    return b"".join(payload) if isinstance(payload, tuple) else bytes(payload), flags


def rendered(batch: Any) -> Any:
    found = []
    for first_seq in (1, 7, 995, 99_998):
        rows = batch.render(first_seq, TS)
        payloads = [
            in_one(*encode_payload(batch, rows, hops, keys))
            for hops in (None, b"\1" * batch.count)
            for keys in (b"", b"k")
        ]
        ends = batch.row_ends(rows).tolist()
        found.append((bytes(rows), ends, payloads))
    meta_lens = None if batch.meta_lens is None else list(batch.meta_lens)
    return found, batch.count, batch.size, list(batch.data_lens), meta_lens, batch.nodes, batch.tags


def agree(body: bytes) -> None:
    answers = []
    for native in WAYS.values():
        with using(native):
            answers.append(outcome(body))
    for one, other in pairwise(answers):
        assert one == other


names = st.one_of(
    st.none(),
    st.sampled_from(["a", "user:7", "", "ä€", 'q"', "b\\", "\n", "\0", "x" * 64]),
    st.text(max_size=5),
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=12)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
metas = st.one_of(st.none(), st.dictionaries(st.text(max_size=4), values, max_size=3), values)
records = st.fixed_dictionaries(
    {"data": values}, optional={"tag": names, "node": names, "meta": metas, "seq": st.just(1)}
)
# Mostly what is right: most of what is wrong looks much the same.
good = st.fixed_dictionaries({"data": values}, optional={"tag": names, "node": names})
bodies = st.fixed_dictionaries(
    {"records": st.one_of(st.lists(good, max_size=20), st.lists(records, max_size=4))},
    optional={"node": names, "create": st.booleans(), "idempotency_key": st.just("k"), "x": st.just(1)},
)
spellings = st.sampled_from([(",", ":"), (", ", ": "), (",\n", ":\t")])


@given(bodies, spellings, st.booleans())
def test_writes_are_told_the_same_either_way(body: Any, spelled: tuple[str, str], ascii_only: bool) -> None:
    agree(json.dumps(body, separators=spelled, ensure_ascii=ascii_only).encode("utf-8", "replace"))


def together(texts: list[bytes]) -> Any:
    """What becomes of several writes that travel together: which are odd, and the rows of the others."""
    found = gather(texts)
    odd = set(found.odd)
    if found.batch is None:
        return odd, [], []
    rows = bytes(found.batch.render(995, TS)).splitlines()
    counts = found.counts or [1] * found.batch.count
    assert len(counts) + len(odd) == len(texts)
    assert found.batch.ends_behind(7) in (
        None,
        (found.batch.row_ends(b"\n".join(rows) + b"\n") + 7).tobytes(),
    )
    return odd, list(zip([n for n in range(len(texts)) if n not in odd], counts, strict=True)), rows


lone = st.lists(st.fixed_dictionaries({"data": values}), min_size=1, max_size=1)
plain = st.fixed_dictionaries({"records": lone})


@given(st.lists(st.one_of(plain, bodies), min_size=1, max_size=6), spellings)
def test_frames_of_plain_records_are_the_same_either_way(
    several: list[Any], spelled: tuple[str, str]
) -> None:
    texts = [json.dumps(one, separators=spelled).encode() for one in several]
    made = [frame_of(native, texts, 995, b"keys") for native in WAYS.values()]
    # Each may leave something to others: Python what is not ASCII, the accelerator halves of a pair.
    frames = [frame for frame in made if frame is not None]
    assert frames.count(frames[0]) == len(frames) if frames else True


@given(st.lists(st.one_of(plain, bodies), min_size=1, max_size=6), spellings)
def test_in_company_a_write_is_what_it_is_alone(several: list[Any], spelled: tuple[str, str]) -> None:
    texts = [json.dumps(one, separators=spelled).encode() for one in several]
    for native in WAYS.values():
        with using(native):
            odd, counts, rows = together(texts)
            alone = [together([text]) for text in texts]
            assert odd == {index for index, one in enumerate(alone) if one[0]}
            assert counts == [(index, one[1][0][1]) for index, one in enumerate(alone) if one[1]]
            data = [msgspec.json.decode(row)["data"] for one in alone for row in one[2]]
            assert [msgspec.json.decode(row)["data"] for row in rows] == data


@given(st.integers(1, 2**50), st.integers(1, 30))
def test_answers_are_the_same_either_way(first: int, count: int) -> None:
    op = SimpleNamespace(
        first_seq=first,
        count=count,
        created=False,
        deduped=False,
        wal_ms=0.25,
        fsync_ms=0.5,
        topic=SimpleNamespace(opening_json=b"{", config=SimpleNamespace(durable=True)),
    )
    told = []
    for native in WAYS.values():
        with using(native):
            answers = answers_of(op, None, 0.0)
            told.append([re.sub(rb'"server_total_ms":[0-9.]+,', b"", one) for one in answers])
    for one, other in pairwise(told):
        assert one == other
        assert [msgspec.json.decode(answer)["seqs"] for answer in one] == [[first + n] for n in range(count)]


head_lines = st.lists(
    st.sampled_from(
        [
            b"\r\nIdempotency-Key: a",
            b"\r\nidempotency-key: b ",
            b"\r\nIdempotency-Key:  c",
            b"\r\nIdempotency-Key: ",
            b"\r\nIDEMPOTENCY-KEY: d",
            b"\r\nidempotency-key: \xc3\xa9",
            b"\r\nidempotency-key: e\tf",
            b"\r\nidempotency-key: g\rh",
            b"\r\nHost: x",
            b"POST / HTTP/1.1",
            b"\r",
            b"\n",
        ]
    ),
    max_size=4,
).map(b"".join)


@settings(max_examples=300)
@given(head_lines)
def test_the_key_of_a_head_is_the_same_either_way(head: bytes) -> None:
    found = []
    for native in WAYS.values():
        with using(native):
            found.append(KnownRequests()._without_key(head))
    for one, other in pairwise(found):
        assert one == other


TOKENS = [
    b'{"records":[',
    b'{"data":',
    b'"tag":',
    b'"node":',
    b'"meta":',
    b"}]}",
    b"}",
    b"]",
    b"[",
    b"{",
    b",",
    b":",
]
TOKENS += [
    b'"a"',
    b"1",
    b"-0.5e+3",
    b"01",
    b"1.",
    b"null",
    b"true",
    b"nul",
    b'"\\n"',
    b'"\\ud800"',
    b'"\\u00e9"',
    b'"\\x"',
]
TOKENS += [
    b'"',
    b"\\",
    b" ",
    b"\xc3\xa9",
    b"\xff",
    b"\0",
    b'{"records":[{"data":1}',
    b',{"data":2}',
    b'{"a":',
    b'"idempotency_key":',
]


@settings(max_examples=400)
@given(st.lists(st.sampled_from(TOKENS), max_size=14).map(b"".join))
def test_so_is_what_is_no_write_at_all(body: bytes) -> None:
    agree(body)


@given(st.data())
def test_so_are_writes_with_a_byte_gone_wrong(data: st.DataObject) -> None:
    good = b'{"records":[{"data":{"a":[1,-2.5e3,"x\\n\\u00e9"]},"tag":"t","node":"n","meta":{"k":null}},'
    good += b'{"data":"}]}"}]}'
    at = data.draw(st.integers(0, len(good) - 1))
    agree(good[:at] + data.draw(st.binary(max_size=2)) + good[at + data.draw(st.integers(0, 2)) :])


@pytest.mark.parametrize(
    "body",
    [b'{"records":[{"data":%b}]}' % (b"[" * depth + b"]" * depth) for depth in (60, 64, 65, 66, 200)]
    + [
        b'{"records":[%b{"data":1}]}' % (b'{"data":1},' * 9_999),
        b'{"records":[%b{"data":1}]}' % (b'{"data":1},' * 10_000),
        b'{"records":[{"data":"%b"}]}' % (b"x" * (1024 * 1024 - 2)),
        b'{"records":[{"data":"%b"}]}' % (b"x" * (1024 * 1024 - 1)),
        b'{"records":[{"data":"%b","meta":{"k":1}}]}' % (b"x" * (1024 * 1024 - 9)),
        b'{"records":[{"data":1,"tag":"%b"}]}' % (b"x" * 256),
        b'{"records":[{"data":1,"tag":"%b"}]}' % (b"x" * 257),
        b'{"records":[{"data":1,"node":"%b"}]}' % (b"x" * 129),
        b'{"records":[{"data":1}],"node":"%b"}' % (b"x" * 129),
        b'{"records":[{"data":1},{"data":2,"node":"m"}],"node":"n\\"q"}',
        b'{"records":[{"data":1},{"data":2,"node":"m","tag":null}],"node":"n"}',
        b'{"records":[{"data":1,"meta":{%b}}]}' % b",".join(b'"%d":%d' % (n, n) for n in range(64)),
        b'{"records":[{"data":1,"meta":{%b}}]}' % b",".join(b'"%d":%d' % (n, n) for n in range(65)),
        b'{"records":[{"data":1,"data":2}]}',
        b'{"records":[{"tag":"t","data":2}]}',
        b'{"records":[{"data":1},]}',
        b'{"records":[{"data":1}]]}',
    ],
    ids=lambda body: f"{len(body)}:{body[:40]!r}",
)
def test_limits_are_the_same(body: bytes) -> None:
    agree(body)


ODD = [b"01", b"-01", b"1.", b".5", b"-", b"1e", b"1e+", b"+1", b"0x1", b"tru", b"nulll", b"NaN", b"", b" 1"]
ODD += [
    b'"\x01"',
    b'"\\q"',
    b'"\\u12g4"',
    b'"\\u12',
    b'"\\ud800"',
    b'"\\ud83d\\ude00"',
    b'"a',
    b'"\x7f"',
    b"'a'",
]
ODD += [b"[1,]", b"[,1]", b"[1 2]", b'{"a":1,}', b'{"a"}', b"{1:2}", b'{"a":1,"a":2}', b"[1}", b"-0.0e-0"]


@pytest.mark.parametrize("value", ODD, ids=repr)
def test_odd_values_are_judged_the_same(value: bytes) -> None:
    agree(b'{"records":[{"data":%b}]}' % value)
    agree(b'{"records":[{"data":1},{"data":[%b],"tag":"t"}]}' % value)


@given(st.lists(st.lists(st.one_of(st.none(), st.text(max_size=3)), max_size=30), max_size=6))
def test_tags_are_numbered_and_found_the_same(batches: list[list[str | None]]) -> None:
    answers = []
    for native in WAYS.values():
        with using(native):
            known, index, codes, seq = Names(), TagIndex(), [], 1
            for batch in batches:
                codes.append(known.encode(batch))
                index.extend(1, batch, seq)
                seq += len(batch)
            found = {tag: index.matching(TagMatch(tag, False)).tolist() for tag in known.names}
            answers.append((codes, known.names, found, index.matching(TagMatch("", True)).tolist()))
    for one, other in pairwise(answers):
        assert one == other


@given(st.integers(1, 2**63 - 1), st.integers(1, 1200))
def test_seqs_are_listed_the_same(first: int, count: int) -> None:
    last = min(first + count, 2**63) - 1
    for native in WAYS.values():
        with using(native):
            assert _seqs(first, last) == msgspec.json.encode([*range(first, last + 1)])


@given(st.lists(st.binary(max_size=40).map(lambda row: row.replace(b"\n", b"") + b"\n")))
def test_pages_are_joined_the_same(rows: list[bytes]) -> None:
    for native in WAYS.values():
        with using(native):
            expected = b"<" + b",".join(row[:-1] for row in rows) + b">"
            assert joined_page(b"<", b"".join(rows), b">") == expected


def test_it_is_told_whether_it_is_there() -> None:
    def version(**environment: str) -> str:
        command = [sys.executable, "-m", "topics", "--version"]
        return subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, **environment}, check=True
        ).stdout

    assert version().splitlines()[1] == f"accelerator: {accelerator.described()}"
    assert version(TOPICS_TEST_ACCELERATOR="off").splitlines()[1] == "accelerator: no (switched off)"


def test_it_is_there_where_it_can_be() -> None:
    """Every make target compiles it; in CI, nobody can have forgotten to."""
    if os.environ.get("CI") == "true" and accelerate.compiler() and accelerate.headers():
        assert NATIVE is not None, accelerator.why_not


def test_its_source_is_without_warnings(tmp_path: Path) -> None:
    if accelerate.compiler() and accelerate.headers():
        made, said = accelerate.build(tmp_path, ("-Werror", "-O0"))
        assert made is not None, said


def test_without_a_compiler_nothing_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert accelerate.build(tmp_path) == (None, "there is no C compiler")
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_loaded_is_told_from_what_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(accelerator.SWITCH, raising=False)
    monkeypatch.delitem(sys.modules, "topics.values._accelerator", raising=False)
    monkeypatch.setattr(topics.values, "__path__", [str(tmp_path)])
    assert accelerator._load() == (None, "not compiled")
    (tmp_path / accelerate.name()).write_bytes(b"for another machine")
    importlib.invalidate_caches()
    assert accelerator._load() == (None, "cannot be loaded here")


def test_what_was_compiled_from_another_source_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    if NATIVE is None:
        return
    monkeypatch.setattr(NATIVE, "SOURCE", "another")
    assert accelerator._load() == (None, "compiled from another source")


def test_wrong_arguments_are_refused() -> None:
    """Nobody passes them; they must not crash the process all the same."""
    if NATIVE is None:
        return
    found = NATIVE.cut(b'[{"data":1}]', 0, 12)
    for call in (
        lambda: NATIVE.cut("x", 0, 1),
        lambda: NATIVE.cut(b"x"),
        lambda: NATIVE.gather([1]),
        lambda: NATIVE.gather((b"1",)),
        lambda: NATIVE.answers(b"", 1, 1),
        lambda: NATIVE.key_of_head("x"),
        lambda: NATIVE.ends_behind([1], 1),
        lambda: NATIVE.page(b"", "rows", b""),
        lambda: NATIVE.frames("window", 1, 1, 0),
        lambda: NATIVE.encode([1], {}, []),
        lambda: NATIVE.post([1], 0, {}, [], array),
        lambda: found.payload(1),
        lambda: found.give_node(b"n"),
        NATIVE.Records,
    ):
        with pytest.raises(TypeError):
            call()
    for ends in ([2, 1], [1, 4], [1], []):
        with pytest.raises(ValueError):
            NATIVE.alive(b"abc", array("I", ends), None, b"\0\0", 0, 2, 2, 9)
    with pytest.raises(ValueError):
        NATIVE.alive(b"abc", array("H", [1, 2]), array("I", [1]), b"\0\0", 0, 2, 2, 9)
    for call in (lambda: found.payload(2**63, 1), lambda: found.payload(-1, 1), lambda: NATIVE.seqs(1, 0)):
        with pytest.raises((OverflowError, ValueError)):
            call()
    assert NATIVE.cut(b'[{"data":1}]', 5, 3) is None
    assert NATIVE.cut(b'[{"data":1}]', -1, 12) is None
    assert NATIVE.cut(b'[{"data":1}]', 0, 13) is None


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_no_byte_is_touched_that_is_not_ours(tmp_path: Path) -> None:
    """The same random bodies with every access checked: a process of its own, under AddressSanitizer."""
    made = sanitised.build(tmp_path)
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("accelerator_fuzz.py")), str(made), "200000"],
        env={**os.environ, **sanitised.environment()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_nor_is_one_where_writes_come_together_and_memory_runs_out(tmp_path: Path) -> None:
    """The tests of small writes to many topics, of sockets and of keys, with every access checked."""
    tests = Path(__file__).parents[1]
    several = ["log/write/test_together.py", "log/write/test_together_commit.py", "flow/test_convoys.py"]
    several += ["values/test_sockets.py", "values/test_keys.py"]
    done = subprocess.run(
        [
            *(sys.executable, str(Path(__file__).with_name("sanitised_tests.py")), sanitised.build(tmp_path)),
            *(str(tests / one) for one in several),
        ],
        cwd=tests.parent,
        env={**os.environ, **sanitised.environment(), accelerator.SWITCH: ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
