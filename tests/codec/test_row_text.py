"""Rows joined from pieces are equal to rows that are formatted one by one."""

from __future__ import annotations

import json
from itertools import cycle, islice

import pytest

from tests.support.appending import rows_of
from topics.codec.row_text import FEWEST_ROWS, LOWEST_SEQ, node_of, render_rows

FIRST_SEQS = [1, 500, LOWEST_SEQ - 4, LOWEST_SEQ, 1992, 999_990, 2**53 - 3000]


@pytest.mark.parametrize("first_seq", FIRST_SEQS)
@pytest.mark.parametrize("count", [0, 1, FEWEST_ROWS - 1, FEWEST_ROWS, 2500])
@pytest.mark.parametrize("nodes", [None, [None, "n"], ["n", 'é"\\', "", None]], ids=str)
@pytest.mark.parametrize("metas", [None, [None, b"{}"]], ids=str)
def test_rows_have_every_part_in_its_place(
    first_seq: int, count: int, nodes: list[str | None] | None, metas: list[bytes | None] | None
) -> None:
    values = [b"%d" % number for number in range(count)]
    all_nodes = [*islice(cycle(nodes or [None]), count)]
    all_metas = [*islice(cycle(metas or [None]), count)]
    expected = b"".join(
        b'{"$seq":%d,"$ts":7%b,"data":%b%b}\n'
        % (
            seq,
            b"" if node is None else b',"$node":' + json.dumps(node, ensure_ascii=False).encode(),
            value,
            b"" if meta is None else b',"meta":' + meta,
        )
        for seq, value, node, meta in zip(
            range(first_seq, first_seq + count), values, all_nodes, all_metas, strict=True
        )
    )
    given = () if nodes is None else (None, all_nodes), None if metas is None else all_metas
    assert render_rows(values, first_seq, 7, *given) == expected


@pytest.mark.usefixtures("both_codecs")
@pytest.mark.parametrize("node", ["n", "", "é", 'a"b\\', "\n\t", '","data":{}}', "a" * 128])
def test_the_node_is_read_from_its_row(node: str) -> None:
    rows = rows_of([b'{"$node":"no"}'] * 20, 9, 1_763_240_000_000, nodes=[node] * 20)
    assert [node_of(row) for row in bytes(rows.text).splitlines()] == [node] * 20


@pytest.mark.usefixtures("both_codecs")
@pytest.mark.parametrize("data", [b'"\\"$node\\":\\"n\\""', b'{"$node":"n"}', b"1"])
def test_a_row_without_a_node_has_none(data: bytes) -> None:
    assert node_of(bytes(rows_of([data], 1, 2, metas=[b'{"$node":"n"}']).text)) is None
