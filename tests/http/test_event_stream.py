"""Frames to the byte, and one timer that serves every stream."""

from __future__ import annotations

import asyncio
import gc
import weakref

from topics.http.open_streams import Heartbeats


class Silent:
    """A stream that counts its heartbeats."""

    def __init__(self, heartbeat_s: float, last_sent: float) -> None:
        self.heartbeat_s = heartbeat_s
        self.last_sent = last_sent
        self.beats = 0
        self.beaten = asyncio.Event()

    def beat(self) -> None:
        self.beats += 1
        if self.beats == 3:
            self.beaten.set()


def test_idle_streams_beat_each_at_its_own_pace_and_busy_ones_do_not() -> None:
    async def main() -> None:
        now = asyncio.get_running_loop().time()
        heartbeats = Heartbeats()
        slow, quick, busy = Silent(60, now), Silent(0.01, now), Silent(0.01, now + 1000)
        for stream in (slow, quick, busy):
            heartbeats.add(stream)
        await asyncio.wait_for(quick.beaten.wait(), 10)
        assert (slow.beats, busy.beats) == (0, 0)
        # Sent just now, by the heartbeat itself.
        assert quick.last_sent > now

    asyncio.run(main())


def test_a_frame_puts_the_next_heartbeat_off() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        heartbeats = Heartbeats()
        stream, clock = Silent(0.02, loop.time()), Silent(0.02, loop.time())
        heartbeats.add(stream)
        heartbeats.add(clock)
        stream.last_sent = loop.time() + 1000
        await asyncio.wait_for(clock.beaten.wait(), 10)
        assert stream.beats == 0

    asyncio.run(main())


def test_a_cancelled_stream_is_forgotten_and_the_last_one_stops_the_timer() -> None:
    async def main() -> None:
        now = asyncio.get_running_loop().time()
        heartbeats = Heartbeats()
        gone, left = Silent(60, now + 5), Silent(60, now)
        entries = [heartbeats.add(gone), heartbeats.add(left)]
        reference = weakref.ref(gone)
        heartbeats.cancel(entries[0])
        del gone
        gc.collect()
        assert reference() is None
        heartbeats.cancel(entries[1])
        heartbeats.cancel(entries[1])
        assert heartbeats._timer is None
        assert not heartbeats._entries

    asyncio.run(main())
