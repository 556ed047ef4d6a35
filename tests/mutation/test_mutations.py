"""The mutations fit the sources, the document lists them, and the quickest are tried."""

import subprocess
import sys

import pytest

from tests.mutation import document
from tests.mutation.mutations import MUTATIONS
from tests.mutation.runner import ROOT, put_to_the_test, workshop

QUICK = ("evict-in-silence", "take-a-failed-sync-for-done")


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_the_text_it_changes_is_there_once(mutation):
    assert (ROOT / mutation.file).read_text().count(mutation.old) == 1
    assert mutation.new != mutation.old


def test_names_differ():
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS)


def test_every_proof_exists():
    proofs = sorted({proof for mutation in MUTATIONS for proof in mutation.proof})
    collected = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", *proofs],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert collected.returncode == 0, collected.stdout[-2000:]


def test_the_document_shows_them():
    assert document.shown() == document.rows(MUTATIONS), "run: python -m tests.mutation --document"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", QUICK)
def test_a_broken_mechanism_is_noticed(name):
    (mutation,) = (each for each in MUTATIONS if each.name == name)
    with workshop() as place:
        verdict = put_to_the_test(place, mutation)
    assert verdict.caught, verdict.said


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_every_broken_mechanism_is_noticed(mutation):
    with workshop() as place:
        verdict = put_to_the_test(place, mutation)
    assert verdict.caught, verdict.said
