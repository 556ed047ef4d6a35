"""Which name was meant."""

from __future__ import annotations

import time

import pytest

from topics.core import nearest

KEYS = ("before_seq", "match", "seqs", "dry_run", "from_seq", "durability", "limit", "wait_ms")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("matches", "match"),
        ("durabilty", "durability"),
        ("limti", "limit"),
        ("fromSeq", "from_seq"),
        ("FROM-SEQ", "from_seq"),
        ("before", "before_seq"),
        ("wait", "wait_ms"),
        ("seq", "seqs"),
        ("colour", None),
        ("", None),
    ],
)
def test_a_typo_finds_what_was_meant(given: str, meant: str | None) -> None:
    assert nearest(given, KEYS) == meant


def test_nothing_is_near_to_nothing() -> None:
    assert nearest("limit", ()) is None


def test_a_name_of_a_megabyte_costs_nothing() -> None:
    began = time.perf_counter()
    assert nearest("limit" * 200_000, KEYS) is None
    assert time.perf_counter() - began < 1.0
