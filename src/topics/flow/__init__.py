"""What moves by itself: the commit loop, background checkpoints, and everything that pushes records.

    engine.queue ─▶ commit (group write, group sync) ─▶ waiters woken
    engine       ─▶ upkeep (rotation, checkpoints, clock marks)

Code here runs on the event loop and owns timers and tasks; the rules of a topic stay in `log`.
"""
