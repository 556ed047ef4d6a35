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
their `Exchange`, and share `service` (the engine behind it), `fields` (what bodies hold) and `paging`; those
for the bulk plane come together in `bulk_routes`, all of them in `app`. Two packages tell about the server
itself: `metrics` and `openapi`. Nothing below this package knows that HTTP exists.
"""
