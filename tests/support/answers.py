"""What a server said, and what holds of everything it says."""

from __future__ import annotations

import http.client
import json
from typing import Any


class Answer:
    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @classmethod
    def read(cls, connection: http.client.HTTPConnection) -> Answer:
        """The whole answer to what was asked on this connection."""
        response = connection.getresponse()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return cls(response.status, headers, response.read())

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """Which error this is, after checking the envelope around it."""
        assert self.headers["content-type"] == "application/json"
        assert set(self.json) <= {"error", "performance"}
        error = self.json["error"]
        assert set(error) <= {"code", "message", "detail"}
        assert isinstance(error["message"], str)
        assert error["message"]
        assert isinstance(error.get("detail", {}), dict)
        code: str = error["code"]
        return code

    def ok(self, status: int = 200) -> Any:
        """The body of a success: no wrapper, no error, always timed."""
        assert self.status == status, (self.status, self.body[:500])
        assert self.headers["content-type"].startswith("application/json")
        body = self.json
        assert not {"error", "ok"} & set(body)
        assert isinstance(body["performance"]["server_total_ms"], int | float)
        assert all(isinstance(value, int | float) for value in body["performance"].values())
        return body

    def refused(self, status: int, code: str) -> Any:
        """The detail of a refusal of this kind."""
        assert self.status == status, (self.status, self.body[:500])
        assert self.code == code, self.body[:500]
        if status in (429, 503):
            assert int(self.headers["retry-after"]) >= 0
        return self.json["error"].get("detail")
