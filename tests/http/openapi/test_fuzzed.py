"""Every operation of the document is fuzzed: tests/fuzz/corpus.py has a request of its kind to start from."""

from __future__ import annotations

import re

from tests.fuzz import corpus
from tests.http.openapi.described import Described


def test_there_is_a_request_of_every_kind(described: Described) -> None:
    sent = [request.partition(b" HTTP/")[0].partition(b"?")[0].decode() for request in corpus.requests()]
    for template, operations in described.document["paths"].items():
        pattern = re.sub(r"\{[a-z_]+\}", "[^/]+", template)
        for method in operations.keys() & {"get", "put", "post", "delete"}:
            wanted = f"{method.upper()} {pattern}"
            assert any(re.fullmatch(wanted, one) for one in sent), (
                f"{wanted} is missing in tests/fuzz/corpus.py"
            )
