"""Bytes on sockets: requests in, answers and streams out.

    socket ─▶ pipeline (one at a time; `known_requests` need no parsing, `http1` parses the others)
           ─▶ the door ─▶ a route (`routing`) with an exchange: the `request`, and a way to answer it
    route  ─▶ exchange (reply, fail, stream) ─▶ pipeline (in order) ─▶ channel (pressure) ─▶ socket

Clients that speak HTTP/2 are given over to `http2` (`protocol_choice`), where each request has a lane.

A stream of the channel, `event_stream` and `websocket` are answers without an end; `fed_connection` leaves
slow clients alone; `request_log` sees every request end. All connections share a `context`.
"""
