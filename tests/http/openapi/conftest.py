"""The document of a server, taken apart once."""

from __future__ import annotations

import pytest

from tests.http.openapi.described import Described
from topics.core import Settings
from topics.http.app import Application
from topics.http.openapi import build


@pytest.fixture(scope="session")
def described(tmp_path_factory: pytest.TempPathFactory) -> Described:
    app = Application(Settings(data_dir=str(tmp_path_factory.mktemp("described"))))
    return Described(build(app.server.routes))
