"""Routers: records of one topic are copied into another, off the write path.

    topic.wake ─▶ background (when) ─▶ registry (which routers, how much)
               ─▶ step (which records; filter, hops, keys, capacity) ─▶ copies (in the destination)
    frames     ─▶ recovery ─▶ copies                                       the same copies after a restart

`definitions` has the routers, their graph, and what the journal says of them.

The journal does not hold the copies:

    source append ─▶ Append frame                                  the records, once
    a step        ─▶ Route frame                                   which source seqs became which seqs where
    recovery      ─▶ Append frames + Route frames ─▶ copies        with the same seqs and timestamps
    checkpoint    ─▶ copies are sealed like any other records      and need their source no longer

Recovery makes copies again from the *frames* of the source, so it does not matter which records the source
has deleted, evicted or dropped since. A run of a destination that is not sealed holds the journal back to the
source frames that it depends on. If the journal may not have the source records (they are sealed already, or
of class ephemeral), the step carries those records itself.

Copies and cursor move by one frame: a copy is never repeated, and never skipped.
"""
