"""Rows joined from pieces are those that encoding each record gives."""

import json
from itertools import cycle, islice, product, repeat

import numpy as np
import pytest
from msgspec import Raw

from topics.log.write.append_request import parse_append
from topics.storage.rows import FEWEST_ROWS, LOWEST_SEQ, node_of, render_rows, restamp, rows_and_ends

pytestmark = pytest.mark.usefixtures("both_ways")


def encoded(values: list[str], first_seq: int, ts: int) -> bytes:
    rows = (f'{{"$seq":{seq},"$ts":{ts},"data":{value}}}\n' for seq, value in enumerate(values, first_seq))
    return "".join(rows).encode()


@pytest.mark.parametrize("first_seq", [1000, 1001, 1992, 999_990, 999_999, 123_456_789_012, 2**53 - 3000])
@pytest.mark.parametrize("count", [1, 2, 8, 999, 1000, 1001, 2500])
@pytest.mark.parametrize("ts", [0, 5, 1_763_240_000_000])
def test_rows_across_thousands(first_seq: int, count: int, ts: int) -> None:
    values = [json.dumps({"n": number, "t": "é}\\n"}) for number in range(count)]
    rows = render_rows([Raw(value.encode()) for value in values], first_seq, ts)
    assert rows == encoded(values, first_seq, ts)


@pytest.mark.parametrize("first_seq", [1, 9, 95, 998, 99_995, 2**53 - 3000])
@pytest.mark.parametrize("count", [1, 2, 100])
def test_rows_end_where_they_are_said_to_end(first_seq: int, count: int) -> None:
    values = [json.dumps({"n": number}) for number in range(count)]
    rows, ends = rows_and_ends(values, first_seq, 5, 100)
    assert rows == encoded(values, first_seq, 5)
    assert ends == [100 + len(encoded(values[: at + 1], first_seq, 5)) for at in range(count)]


@pytest.mark.parametrize("first_seq", [1, 995, 1000, 99_950])
@pytest.mark.parametrize("count", [1, FEWEST_ROWS - 1, FEWEST_ROWS, 100])
@pytest.mark.parametrize("nodes", [None, [None, "n"], ["n", 'é"\\', "", None]], ids=str)
@pytest.mark.parametrize("metas", [None, [None, b"{}"], [b'{"k":1}']], ids=str)
def test_rows_say_who_wrote_them_and_what_comes_with_them(
    first_seq: int, count: int, nodes: list[str | None] | None, metas: list[bytes | None] | None
) -> None:
    values = [str(number) for number in range(count)]
    written_by = None if nodes is None else list(islice(cycle(nodes), count))
    with_them = None if metas is None else list(islice(cycle(metas), count))
    wanted = [
        b'{"$seq":%d,"$ts":7%b,"data":%b%b}\n'
        % (
            first_seq + number,
            b"" if node is None else b',"$node":' + json.dumps(node, ensure_ascii=False).encode(),
            values[number].encode(),
            b"" if meta is None else b',"meta":' + meta,
        )
        for number, node, meta in zip(
            range(count), written_by or repeat(None), with_them or repeat(None), strict=False
        )
    ]
    rows = render_rows([Raw(value.encode()) for value in values], first_seq, 7, written_by, with_them)
    assert rows == b"".join(wanted)


@pytest.mark.parametrize("first_seq", [1, 500, LOWEST_SEQ - 4, LOWEST_SEQ, 77_777])
@pytest.mark.parametrize("count", [1, FEWEST_ROWS - 1, FEWEST_ROWS, 300])
@pytest.mark.parametrize("tag", [False, True])
def test_batches_render_the_same_however_many_and_wherever(first_seq: int, count: int, tag: bool) -> None:
    values = [str(number) for number in range(count)]
    with_tag = ',"tag":"t"' if tag else ""
    records = ",".join(f'{{"data":{value}{with_tag}}}' for value in values)
    batch = parse_append(f'{{"records":[{records}]}}'.encode()).batch
    assert batch.render(first_seq, 7) == encoded(values, first_seq, 7)


@pytest.mark.parametrize("node", ["n", "", "é", 'a"b\\', "\n\t", '","data":{}}', "a" * 128])
def test_a_row_says_who_wrote_it(node: str) -> None:
    record = {"data": {"$node": "no"}, "meta": {"$node": "neither"}, "node": node}
    for count in (1, 20):
        body = json.dumps({"records": [record] * count}, ensure_ascii=False)
        rows = parse_append(body.encode()).batch.render(9, 1_763_240_000_000)
        assert [node_of(row) for row in bytes(rows).splitlines(keepends=True)] == [node] * count


def test_a_row_without_a_node_was_written_by_nobody() -> None:
    for record in ({"data": '"$node":"n"'}, {"data": {"$node": "n"}}, {"data": 1, "meta": {"$node": "n"}}):
        body = json.dumps({"records": [record]}).encode()
        assert node_of(parse_append(body).batch.render(1, 2)) is None


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("ts", [7000, 7001, 9999, 10_000])
def test_rows_get_another_seq_and_time_where_these_are_as_long(count: int, ts: int) -> None:
    values = ["1", '"two"', "[3]"][:count]
    for were, are in product((1, 8, 17, 40, 95, 97, 98), (1, 7, 9, 17, 18, 39, 97, 98, 120)):
        before, wanted = encoded(values, were, 7000), encoded(values, are, ts)
        rows = np.frombuffer(bytearray(before), np.uint8)
        ends = np.cumsum([len(row) for row in before.splitlines(keepends=True)]).astype(np.uint32)
        digits = {len(str(seq)) for first in (were, are) for seq in (first, first + count - 1)}
        fits = len(digits) == 1 and ts < 10_000
        assert restamp(rows, ends, (were, 7000), (are, ts)) is fits
        assert bytes(rows) == (wanted if fits else before)
