"""Background work and state beside the log: everything above the truth of one topic.

    watch/    a topic that moved ─▶ all that watch it
    routers/  a topic that moved ─▶ copies in other topics
    queues/   claim, ack, nack ─▶ leases ─▶ dead letters
    stages/   bulk writes in parts ─▶ one commit under an identity

`admission` stands before the log: every append and every read passes it. It asks `load_shedder` (how much
pressure there is) and `priority_scheduler` (whose turn it is).

Beside them:

    upkeep          when the journal rotates; `checkpoints` seal and release, `cold_tier` moves old segments
    disk_space      the ballast file, and when writes return after the disk was full
    malloc_trimmer  freed memory goes back to the system
    large_appends   written into segments aside        large_deletes   files are searched ahead
    cursors         positions of consumers             pipelines       reports of pipelines
    segment_pins    sealed files that readers open directly; `file_pins` keeps them in place, as for backups

Code here runs on the event loop and owns timers and tasks; the rules of a topic stay in `log`.
"""
