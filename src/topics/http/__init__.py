"""The wire: one HTTP request in, one answer out, or a stream that stays.

    socket -> protocol -> admission -> body -> handler -> exchange -> protocol -> socket
              (parse,     (key, slot,  (type,   (one per   (reply,     (in order,
               limits)     scope,       gzip)    route)     fail,       one write)
                           route, size)                     stream)

`server` binds, watches the signals and drains; `timeouts` closes clients that stall; `edge` is what
all connections share. A hot handler answers inside the parser's own callback: no task, no future.
Handlers know only their `Exchange`; nothing below this package knows that HTTP exists.
"""
