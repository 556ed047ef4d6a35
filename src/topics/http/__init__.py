"""The HTTP server: requests in, replies and streams out.

    socket ─▶ connection ─▶ parser or known head ─▶ dispatch ─▶ admission ─▶ routes
           ◀─ connection, in the order of the requests ◀── exchange ◀── routes

`connection` speaks HTTP/1.1, `http2` and `http2_stream` speak HTTP/2, and `tls` chooses between them.
`request_parser` parses. A request whose head was seen before (`known_heads`) is neither parsed nor routed
again. `exchange` is a request with a way to reply. Replies without an end are a `stream`: server-sent events
(`sse`), Arrow, or a `websocket`. `open_streams` has all that are open.

`server` binds, handles signals and drains; `app` puts everything together; all connections share a `context`;
`request_log` sees every request end. Nothing below this package knows that HTTP exists.
"""
