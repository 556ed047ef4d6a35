"""Routers: whatever is committed to one topic is copied into another, off the write path.

    topic.wake ─▶ background (when) ─▶ registry (which routers, how much at once) ─▶ source_window (what)
               ─▶ step (filter, hops, exactly_once, capacity) ─▶ copies ─▶ arrival (in the destination)
    frames     ─▶ recovery ─▶ lineage ─▶ copies ─▶ arrival         the same again, after a restart

How copies survive without being journalled:

    source append ─▶ Append frame                                  the records, once
    a step        ─▶ Route frame                                   which source seqs became which seqs where
    recovery      ─▶ Append frames + Route frames ─▶ same copies   same seqs, same timestamps
    checkpoint    ─▶ copies are sealed like any other records      and need their source no longer

Recovery makes copies again from the *frames* of the source, so it does not matter what the source has
deleted, evicted or dropped since. A destination's run that is not sealed yet holds the journal back as far
as the source frames it depends on. Where the journal does not have the source records for certain (they are
sealed already, or of class ephemeral), the step carries those records itself.

Copies and cursor move by one frame: a copy is never repeated, and never skipped.
"""
