import asyncio

import pytest

from topics.http.routing import Route


@pytest.fixture
def opened():
    return []


@pytest.fixture
def running(serve, opened):
    def stream(exchange):
        body = exchange.open_stream(b"text/event-stream", [(b"Cache-Control", b"no-store")])
        body.write(b"retry: 2000\n\n")
        opened.append(body)

    def upgrade(exchange):
        raw = exchange.upgrade()
        raw.write(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
        opened.append(raw)

    async def broken(exchange):
        exchange.open_stream(b"text/event-stream").write(b"x")
        await asyncio.sleep(0)
        raise ValueError

    routes = [
        Route(method="GET", template="/stream", handler=stream, event_stream=True),
        Route(method="GET", template="/ws", handler=upgrade, websocket=True),
        Route(method="GET", template="/broken", handler=broken, event_stream=True),
    ]
    return serve(routes, keys="k", max_inflight_per_key=1)


AUTH = {"Authorization": "Bearer k"}
UPGRADE = {**AUTH, "Connection": "Upgrade", "Upgrade": "websocket"}


def test_a_stream_is_chunked_and_ends_with_its_connection(running, opened, raw, wait_until):
    wire = running.connect()
    wire.send(raw("GET", "/stream", headers=AUTH))
    status, headers = wire.read_head()
    assert (status, headers["content-type"], headers["cache-control"]) == (
        200,
        "text/event-stream",
        "no-store",
    )
    assert headers["transfer-encoding"] == "chunked"
    assert wire.read_chunk() == b"retry: 2000\n\n"
    assert running.inflight() == 0
    stream = opened[0]
    running.loop.call_soon_threadsafe(stream.write, b"")
    running.loop.call_soon_threadsafe(stream.write, b": hb\n\n")
    assert wire.read_chunk() == b": hb\n\n"
    assert not stream.closed
    running.loop.call_soon_threadsafe(stream.close)
    assert wire.read_chunk() == b""
    assert wire.at_end()
    wait_until(lambda: not running.server.context.streams)
    assert stream.closed


def test_a_client_that_leaves_its_stream(running, opened, raw, wait_until):
    closed = []
    wire = running.connect()
    wire.send(raw("GET", "/stream", headers=AUTH))
    wire.read_head()
    stream = opened[0]
    running.loop.call_soon_threadsafe(stream.on_close, lambda: closed.append(1))
    running.loop.call_soon_threadsafe(stream.on_close, lambda: closed.append(2))
    wire.close()
    wait_until(lambda: closed == [1, 2])
    assert stream.closed
    stream.write(b"nobody")
    stream.close()
    stream.on_close(lambda: closed.append(3))
    assert closed == [1, 2, 3]
    assert stream.buffered() == 0


def test_a_stream_that_is_not_read_shows_and_can_be_waited_for(running, opened, raw, wait_until):
    wire = running.connect()
    wire.send(raw("GET", "/stream", headers=AUTH))
    wire.read_head()
    assert wire.read_chunk()
    stream = opened[0]
    piece = bytes(1 << 20)

    async def fill():
        count = 0
        while stream.buffered() < 4 << 20:
            stream.write(piece)
            count += 1
        drained = asyncio.ensure_future(stream.drain())
        await asyncio.sleep(0.05)
        return count, drained

    count, drained = asyncio.run_coroutine_threadsafe(fill(), running.loop).result(20)
    assert not drained.done()
    for _ in range(count):
        assert wire.read_chunk() == piece
    wait_until(drained.done)
    assert stream.buffered() == 0


def test_a_handler_that_fails_after_opening_ends_the_stream(running, raw, caplog):
    wire = running.connect()
    wire.send(raw("GET", "/broken", headers=AUTH))
    assert wire.read_head()[0] == 200
    # No last chunk: the client can tell that this is not the proper end.
    with pytest.raises((ConnectionError, ValueError)):
        wire.file.read(len(b"1\r\nx\r\n")) and wire.read_chunk()
    assert "ValueError" in caplog.text


def test_what_is_sent_behind_an_upgrade_behind_another_request_is_kept(running, opened, raw, wait_until):
    wire = running.connect()
    absent = raw("GET", "/absent", headers=AUTH)
    wire.send(absent * 1000 + raw("GET", "/ws", headers=UPGRADE) + b"\x81early")
    for _ in range(1000):
        assert wire.read().status == 404
    assert wire.file.readline() == b"HTTP/1.1 101 Switching Protocols\r\n"
    received = []
    running.loop.call_soon_threadsafe(opened[0].set_receiver, received.append)
    wait_until(lambda: b"".join(received) == b"\x81early")
    running.loop.call_soon_threadsafe(opened[0].close)


def test_an_upgraded_connection_is_bare(running, opened, raw, wait_until):
    wire = running.connect()
    # Bytes right behind the request belong to the other protocol already.
    wire.send(raw("GET", "/ws", headers=UPGRADE) + b"\x81early")
    assert wire.file.readline() == b"HTTP/1.1 101 Switching Protocols\r\n"
    assert wire.file.readline() == b"\r\n"
    upgraded = opened[0]
    assert upgraded.headers[b"upgrade"] == b"websocket"
    received = []
    running.loop.call_soon_threadsafe(upgraded.set_receiver, received.append)
    wait_until(lambda: b"".join(received) == b"\x81early")
    running.loop.call_soon_threadsafe(upgraded.pause_reading)
    running.loop.call_soon_threadsafe(upgraded.write, b"pong")
    assert wire.file.read(4) == b"pong"
    wire.send(b"more")
    running.loop.call_soon_threadsafe(upgraded.resume_reading)
    wait_until(lambda: b"".join(received) == b"\x81earlymore")
    assert running.inflight() == 0
    running.loop.call_soon_threadsafe(upgraded.close)
    assert wire.at_end()
    assert upgraded.closed
