"""A real nginx in front of a server: a process of its own, with its own directory, and without privileges."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.support import eventually, free_port

PROGRAM = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
# Long enough for a request that is under way, short enough to wait for one that never ends.
PATIENCE_S = 1
# All clients share one connection to the server: what one of them leaves behind, the next one would get.
_CONFIGURATION = """
daemon off;
master_process off;
pid {directory}/pid;
error_log {directory}/error.log info;
events {{ worker_connections 64; }}
http {{
    log_format answered '$upstream_status';
    access_log {directory}/access.log answered;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    client_header_timeout {patience}s;
    client_body_timeout {patience}s;
    lingering_timeout {patience}s;
    upstream topics {{ server {server}; keepalive 1; }}
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_set_header Host $host;
    proxy_next_upstream off;
    server {{ listen 127.0.0.1:{whole}; location / {{ proxy_pass http://topics; }} }}
    server {{
        listen 127.0.0.1:{streamed};
        proxy_request_buffering off;
        proxy_buffering off;
        location / {{ proxy_pass http://topics; }}
    }}
}}
"""


class NginxProcess:
    """It listens at a port of its own for each of `names`, which the configuration has as its fields."""

    def __init__(
        self, configuration: str, names: Iterable[str], files: Iterable[Path] = (), **fields: Any
    ) -> None:
        """`files` are put into its directory: it runs as somebody else, who cannot read them elsewhere."""
        assert PROGRAM is not None
        self.directory = Path(tempfile.mkdtemp(prefix="topics-nginx-"))
        self.addresses = {name: ("127.0.0.1", free_port()) for name in names}
        ports = {name: port for name, (_, port) in self.addresses.items()}
        file = self.directory / "nginx.conf"
        file.write_text(configuration.format(directory=self.directory, **ports, **fields))
        for each in files:
            Path(shutil.copy(each, self.directory)).chmod(0o644)
        self.directory.chmod(0o777)
        command = [PROGRAM, "-p", str(self.directory), "-c", str(file)]
        log = self.directory / "output.log"
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [*command, "-e", str(self.directory / "error.log")],
                stdout=output,
                stderr=output,
                user="nobody" if os.geteuid() == 0 else None,
            )
        eventually(self._listens, 30, log.read_text)

    def _listens(self) -> bool:
        assert self._process.poll() is None, "nginx has ended"
        try:
            for address in self.addresses.values():
                socket.create_connection(address, 1).close()
        except ConnectionRefusedError:
            return False
        return True

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(10)
        shutil.rmtree(self.directory)


class Nginx(NginxProcess):
    """It listens twice: where it hands on requests when they are whole, and where it does so as they come."""

    def __init__(self, server: str) -> None:
        super().__init__(_CONFIGURATION, ("whole", "streamed"), server=server, patience=PATIENCE_S)

    def forwarded(self) -> list[str]:
        """What the server has answered to each request that was handed on, in the order of their ends."""
        answered = (self.directory / "access.log").read_text().split("\n")
        return [status for status in answered if status not in ("", "-")]
