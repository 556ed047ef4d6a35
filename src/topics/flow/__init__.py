"""What moves by itself, and what is kept for consumers that come back: all above the truth of one topic.

    watch/    a topic that moved ─▶ all that watch it
    routers/  a topic that moved ─▶ copies in other topics
    queues/   claim, ack, nack ─▶ leases ─▶ dead letters
    stages/   bulk writes in parts ─▶ one commit under an identity

`admission` stands before the log: every append and every read passes it. `governor` (how much pressure there
is) and `pacing` (whose turn it is) decide there.

Beside them, for the sake of all: `upkeep` (rotation, checkpoints, old segments moved to the second
tier), `freed_memory` (kept for what comes next, and given back), `large_deletes` (files asked ahead),
`cursors` (how far a consumer says it has come) and `pins` (which sealed files hold a topic, for readers that
open them directly), which keeps them in place by `file_holds`, as backups do.

Code here runs on the event loop and owns timers and tasks; the rules of a topic stay in `log`.
"""
