"""A log with everything that lives on it, put together in one place, and without a wire.

    Node(settings) ─▶ recover() ─▶ run() ─▶ close()
      opened           recovered    running  closed

    values, storage ─▶ log (Engine) ─▶ flow (queues, routers, cursors, stages, pins, upkeep)
                                    ─▶ keep (holds, purges)              ─▶ Node ─▶ http serves it

`http` serves a node that runs; the offline verbs of `cli` open one, recover it and leave it again.
"""
