"""Background work and state beside the log: everything above the truth of one topic.

    watch/    a topic that moved ─▶ all that watch it
    routers/  a topic that moved ─▶ copies in other topics
    queues/   claim, ack, nack ─▶ leases ─▶ dead letters
    stages/   bulk writes in parts ─▶ one commit under an identity

Every append and every read passes `admission`. It asks `load_shedder` (how much pressure there is) and
`priority_scheduler` (whose turn it is).

    large_appends   written into segments aside        large_deletes   files are searched ahead
    upkeep          when the journal rotates; `checkpoints` seal, release, and move old segments
    disk_space      the ballast file, and when writes return after the disk was full
    cursors         positions of consumers             pipelines       reports of pipelines
    pins            sealed files that readers open directly

Code here runs on the event loop and owns timers and tasks; the rules of a topic stay in `log`.
"""
