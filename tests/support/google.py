"""As much of Google Cloud Storage as tables need, as a process of its own: its XML API, with generations.

No emulator that can be installed from PyPI or npm honours conditional puts of this API.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from datetime import UTC, datetime
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.support.stores import BUCKET, Store


class _Objects(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.lock = threading.Lock()
        self.contents: dict[str, bytes] = {}
        # When each was put: what no commit names is removed by its age.
        self.times: dict[str, datetime] = {}
        self.generations = 0

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients hang up in the middle of what they need no more of."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Objects

    def log_message(self, *_: Any) -> None:
        return

    @property
    def _name(self) -> str:
        return unquote(urlsplit(self.path).path).removeprefix(f"/{BUCKET}").lstrip("/")

    def _say(self, status: int, content: bytes = b"", *, length: int | None = None, **headers: str) -> None:
        self.send_response(status)
        told = {"ETag": f'"{self.server.generations}"', "Last-Modified": formatdate(usegmt=True), **headers}
        for key, value in told.items():
            self.send_header(key.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content) if length is None else length))
        self.end_headers()
        self.wfile.write(content)

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.lock:
            if self.headers["x-goog-if-generation-match"] == "0" and self._name in self.server.contents:
                self._say(412)
                return
            self.server.generations += 1
            self.server.contents[self._name] = content
            self.server.times[self._name] = datetime.now(UTC)
        self._say(200, x_goog_generation=str(self.server.generations))

    def do_GET(self) -> None:
        if not self._name:
            self._say(200, self._listed(), Content_Type="application/xml")
            return
        content = self.server.contents.get(self._name)
        if content is None:
            self._say(404)
            return
        wanted = self.headers["Range"]
        if wanted is None:
            self._say(200, content)
            return
        begin, _, end = wanted.removeprefix("bytes=").partition("-")
        first = int(begin) if begin else len(content) - int(end)
        last = min(int(end), len(content) - 1) if begin and end else len(content) - 1
        place = f"bytes {first}-{last}/{len(content)}"
        self._say(206, content[first : last + 1], Content_Range=place)

    def do_HEAD(self) -> None:
        content = self.server.contents.get(self._name)
        self._say(404 if content is None else 200, length=0 if content is None else len(content))

    def do_DELETE(self) -> None:
        self._say(204 if self.server.contents.pop(self._name, None) is not None else 404)

    def _listed(self) -> bytes:
        query = parse_qs(urlsplit(self.path).query)
        prefix, delimiter = query.get("prefix", [""])[0], query.get("delimiter", [""])[0]
        after = query.get("start-after", [""])[0]
        rows, folders = [], set()
        with self.server.lock:
            found = sorted(
                (name, len(content), self.server.times[name])
                for name, content in self.server.contents.items()
            )
        for name, size, put in found:
            if not name.startswith(prefix) or name <= after:
                continue
            rest = name.removeprefix(prefix)
            if delimiter and delimiter in rest:
                folders.add(prefix + rest.partition(delimiter)[0] + delimiter)
            else:
                rows.append(
                    f"<Contents><Key>{escape(name)}</Key><Size>{size}</Size>"
                    f"<LastModified>{put:%Y-%m-%dT%H:%M:%S.000Z}</LastModified><ETag>x</ETag></Contents>"
                )
        rows += [
            f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>" for one in sorted(folders)
        ]
        return f"<ListBucketResult>{''.join(rows)}</ListBucketResult>".encode()


class Google(Store):
    scheme = "gs"

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.google"], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        account = {
            "gcs_base_url": f"http://127.0.0.1:{int(self._process.stdout.readline())}",
            "disable_oauth": True,
            "client_email": "",
            "private_key": "",
            "private_key_id": "",
        }
        self.options = {"google_service_account_key": json.dumps(account), "allow_http": "true"}


if __name__ == "__main__":
    objects = _Objects()
    print(objects.server_port, flush=True)
    objects.serve_forever()
