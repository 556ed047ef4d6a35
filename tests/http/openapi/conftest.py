"""The checked-in document, taken apart once."""

from __future__ import annotations

import pytest

from tests.http.openapi.described import Described


@pytest.fixture(scope="session")
def described() -> Described:
    return Described()
