"""Bytes on sockets: requests in, answers and streams out.

    socket ─▶ http1 (parse; `known_requests` spares it) ─▶ pipeline (one at a time) ─▶ the door ─▶ a route
    route  ─▶ exchange (reply, fail, stream) ─▶ pipeline (in order) ─▶ channel (one write, pressure) ─▶ socket

`stream`, `event_stream` and `websocket` are answers without an end; `fed_connection` leaves slow clients
alone.
"""
