"""The wire: one HTTP request in, one answer out, or a stream that stays.

    socket -> protocol -> turns -> admission -> body -> handler -> exchange -> turns -> link -> socket
              (parse,     (one     (key, place, (type,  (one per   (reply,     (in      (one write,
               bounds)     by       scope,       gzip)   route)     fail,       order)   pressure)
                           one)     route, size)                    stream)

A request whose head was seen before (`known_heads`) is neither parsed nor routed again, and a hot handler
answers inside the callback that brought the bytes: no task, no future. Single records that arrive in the
same turn of the loop are written together (`lone_appends`).

`server` binds, watches the signals and drains; `timeouts` closes clients that stall; `gate` keeps data
requests out while recovering and draining; `edge` is what all connections share. Handlers know only
their `Exchange`; nothing below this package knows that HTTP exists.
"""
