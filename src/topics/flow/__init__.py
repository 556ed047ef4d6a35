"""What moves by itself, and what is kept for those who come back: everything above the truth of one topic.

Every change ends in the commit queue, and every push begins with a topic that was woken:

    engine.queue ─▶ commit (group write, group sync; the brake when sealing falls behind) ─▶ waiters woken
    topic.wake   ─▶ fanout ─▶ feed ─▶ watching (one step for all at the same place; synced_head where nothing
                    may be taken back) ─▶ streams, and watch_sessions that outlive them
    topic.wake   ─▶ routers (copies into other topics)

Who asks for something that takes more than one append or one read:

    claim, ack   ─▶ queues ─▶ job_queue ─▶ claiming (which jobs, to whom) ─▶ jobs (their text)
                    ─▶ lease_table ─▶ dead_letters
    bulk writes  ─▶ stages ─▶ stage_spool (parts in files) ─▶ one commit under an identity
    bulk reads   ─▶ pins (sealed files stay) · cursors (how far a consumer says it has come)
    deletions    ─▶ deleting (by tag, files asked ahead) · purges (nothing of it left on disk)

In the background, and for the sake of all:

    engine       ─▶ upkeep (rotation, clock marks, checkpoints) ─▶ tiers (old segments move away)
    backups      ─▶ files held still for a copy; rewinding takes a restored copy back to a moment
    governor     ─▶ how much pressure there is, and what gives way ─▶ pacing (whose turn it is)

Code here runs on the event loop and owns timers and tasks; the rules of a topic stay in `log`.
"""
