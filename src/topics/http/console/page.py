"""The files of the console. There is no data in them: the page asks for it, with the key it is given."""

from functools import cache
from hashlib import sha256
from pathlib import Path

from topics.http.exchange import Exchange
from topics.http.routing import Route

BUILT = Path(__file__).parent / "built"
FILES = {
    "/": ("index.html", b"text/html; charset=utf-8"),
    "/console.js": ("console.js", b"text/javascript; charset=utf-8"),
    "/console.css": ("console.css", b"text/css; charset=utf-8"),
    "/console.svg": ("console.svg", b"image/svg+xml"),
}
# Nothing from elsewhere, nothing inline, and no text that would become markup: with trusted types, assigning
# some fails in the browser itself.
POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    b"require-trusted-types-for 'script'; trusted-types 'none'"
)


class ConsolePage:
    """Asked for without a key, and while the server recovers: the page says so itself."""

    def __init__(self, base_path: str = "") -> None:
        self._base_path = base_path

    def routes(self) -> list[Route]:
        shown = [Route("GET", path, self.show, public=True, always_open=True) for path in FILES]
        if self._base_path:
            shown.append(Route("GET", self._base_path, self.lead_in, public=True, always_open=True))
        return shown

    def lead_in(self, exchange: Exchange) -> None:
        """To the folder: the page asks for everything by addresses beside its own."""
        exchange.reply(b"", 308, headers=[(b"Location", self._base_path.encode() + b"/")])

    def show(self, exchange: Exchange) -> None:
        assert exchange.route is not None
        name, content_type = FILES[exchange.route.template]
        body, mark = _read(name)
        headers = [
            (b"Content-Security-Policy", POLICY),
            (b"X-Content-Type-Options", b"nosniff"),
            (b"X-Frame-Options", b"DENY"),
            (b"Referrer-Policy", b"no-referrer"),
            (b"Cross-Origin-Opener-Policy", b"same-origin"),
            (b"Cross-Origin-Resource-Policy", b"same-origin"),
            # Kept, and asked about every time: after an update no browser runs the old page.
            (b"Cache-Control", b"no-cache"),
            (b"ETag", mark),
        ]
        is_known = exchange.headers.get(b"if-none-match") == mark
        exchange.reply(b"" if is_known else body, 304 if is_known else 200, content_type, headers)


@cache
def _read(name: str) -> tuple[bytes, bytes]:
    """Read when it is first asked for, so that starting does not pay for it."""
    body = (BUILT / name).read_bytes()
    return body, b'"%b"' % sha256(body).hexdigest()[:16].encode()
