"""Requests made up from the OpenAPI document, right ones and wrong ones, and answers held against it."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections import Counter
from typing import Any

import hypothesis
import schemathesis
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from requests import Session
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.http.bulk import ARROW
from tests.support.arrow import arrow_stream

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
# Names that exist, so that more than "not found" is reached; the last two do not.
TOPICS = ("log", "jobs", "copy", "full", "fresh", "Gone-1")
# Long enough for a wait to be one, short enough for thousands of them.
MOST_WAIT_MS = 3
TARGET_TOO_LONG = 414


def prepare(call: Any) -> None:
    """`call(method, path, body)`: topics of every kind."""
    call("PUT", "/v0/topics/log", {"cap_records": 50})
    call("PUT", "/v0/topics/jobs", {"type": "queue", "max_deliveries": 2, "dead_letter": "dead"})
    call("PUT", "/v0/topics/full", {"cap_records": 1, "discard": "reject"})
    call("PUT", "/v0/routers/r", {"source": "log", "dest": "copy", "filter": "a*"})


@st.composite
def arrow_bodies(draw: st.DrawFn) -> bytes:
    """A stream as it should be, one with a few bytes changed, or a part of one."""
    cells = draw(st.lists(st.sampled_from(["1", "null", '{"a":1}', "{", ""]), min_size=1, max_size=5))
    body = bytearray(arrow_stream({"data": cells, "tag": ["a"] * len(cells)}))
    for _ in range(draw(st.integers(0, 3))):
        body[draw(st.integers(0, len(body) - 1))] = draw(st.integers(0, 255))
    return bytes(body[: draw(st.sampled_from([len(body), len(body) // 2, 0]))])


class SchemaFuzz:
    def __init__(
        self, document: dict[str, Any], base_url: str, *, headers: dict[str, str] | None = None
    ) -> None:
        schemathesis.openapi.media_type(ARROW, arrow_bodies())
        self._schema = schemathesis.openapi.from_dict(document)
        self._base_url = base_url
        self._headers = headers
        self.statuses: Counter[int] = Counter()

    def run(self, requests: int, *, seed: int) -> None:
        """About so many, spread over all operations, half of them right and half of them wrong."""
        operations = [found.ok() for found in self._schema.get_all_operations()]
        # Streams have no end to wait for; they are fuzzed as bytes.
        endless = ("work", "watchStream", "tail", "socket")
        operations = [o for o in operations if o.definition.raw["operationId"] not in endless]
        examples = max(requests // len(operations) // 2, 1)
        with Session() as session:
            for operation in operations:
                for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                    self._fuzz(session, operation, mode, examples, seed)

    def _fuzz(self, session: Session, operation: Any, mode: GenerationMode, examples: int, seed: int) -> None:
        @hypothesis.seed(seed)
        @hypothesis.settings(
            max_examples=examples,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
        def send(case: Any) -> None:
            _steer(case)
            response = case.call(base_url=self._base_url, headers=self._headers, session=session)
            self.statuses[response.status_code] += 1
            if response.status_code == TARGET_TOO_LONG:
                return  # whatever the route: it was not even looked for
            case.validate_response(response, checks=CHECKS)

        with warnings.catch_warnings(), contextlib.suppress(Unsatisfiable):
            warnings.simplefilter("ignore")
            # Unsatisfiable: a request without any parameter or body cannot be wrong.
            send()


def _steer(case: Any) -> None:
    """Towards things that exist, and away from long waits."""
    path = case.path_parameters or {}
    # Which name is taken has to depend on the case alone, or a failure could not be repeated.
    drawn = len(str(path.get("topic", "")))
    if drawn % 3:
        path["topic"] = TOPICS[drawn % len(TOPICS)]
    if isinstance(case.body, dict) and isinstance(case.body.get("wait_ms"), int):
        case.body["wait_ms"] = min(case.body["wait_ms"], MOST_WAIT_MS)
    # In a query a number may be spelled as text, or stand in a list.
    if isinstance(case.query, dict) and re.search(r"\d{2}", str(case.query.get("wait_ms"))):
        case.query["wait_ms"] = MOST_WAIT_MS
