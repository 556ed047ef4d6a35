"""The table of promises in docs/guarantees.md."""

from __future__ import annotations

from collections.abc import Sequence

from tests.mutation.runner import ROOT, Mutation

DOCUMENT = ROOT / "docs" / "guarantees.md"
_BEGIN, _END = "<!-- promises -->\n", "<!-- end -->\n"
# Proofs are tests of the repository; the document names them as pytest wants them.
_LINE = "| {promise} | {proof} | {name} |\n"


def rows(mutations: Sequence[Mutation]) -> str:
    return "".join(
        _LINE.format(
            promise=mutation.promise,
            proof="<br>".join(f"`{proof}`" for proof in mutation.proof),
            name=f"`{mutation.name}`",
        )
        for mutation in mutations
    )


def shown() -> str:
    return DOCUMENT.read_text().partition(_BEGIN)[2].partition(_END)[0]


def write(mutations: Sequence[Mutation]) -> None:
    text = DOCUMENT.read_text()
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    DOCUMENT.write_text(before + begin + rows(mutations) + end + after)
