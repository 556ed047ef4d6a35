"""HTTP/2, with the `h2` library for frames and their rules. Imported for the first client that speaks it.

    socket ─▶ connection (frames; `input_bounds`) ─▶ a lane for each request (`request_head`) ─▶ the door
    route  ─▶ exchange ─▶ lane (its own queue and window) ─▶ connection (in turns) ─▶ socket

A lane is to an exchange what a connection of HTTP/1.1 is, so everything above is the same for both.
A WebSocket is a lane, too, whose body has no end in either direction (RFC 8441).
"""
