"""What moves by itself: the commit loop, background checkpoints, and everything that pushes records.

    engine.queue ─▶ commit (group write, group sync) ─▶ waiters woken
    engine       ─▶ upkeep (rotation, checkpoints, clock marks)
    topic.wake   ─▶ fanout ─▶ feed ─▶ watching (one step for all at the same place) ─▶ streams and sockets
    topic.wake   ─▶ routers (copies into other topics)

Code here runs on the event loop and owns timers and tasks; the rules of a topic stay in `log`.
"""
