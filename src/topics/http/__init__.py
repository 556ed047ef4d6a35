"""The server on the network: one HTTP request in, one answer out, or a stream that stays.

    socket ─▶ wire (bytes to requests) ─▶ door (may it come in?) ─▶ routes (decode, call, encode)
           ◀─ wire (answers in order) ◀──────────────────────────── routes

A request whose head was seen before (`wire.known_heads`) is neither parsed nor routed again, and a hot
handler answers inside the callback that brought the bytes: no task, no future.

`server` binds, watches the signals and drains; `app` puts everything together; `metrics` and `openapi.json`
tell about the server itself. Nothing below this package knows that HTTP exists.
"""
