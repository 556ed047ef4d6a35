"""One topic's truth: what was written, what is still live, and what a reader must be told.

    write    body ─▶ batch ─▶ append (admit, assign seqs, render once) ─▶ commit queue ─▶ journal ─▶ publish
    read     cursor ─▶ tombstone (a gap, if there is one) ─▶ page (walk over runs) ─▶ rows as rendered
    remove   deletes, caps and age ─▶ floor, loss line, ledger
    seal     runs ─▶ segments ─▶ snapshot ─▶ journal and files that no snapshot needs are let go
    recover  snapshot ─▶ reload (journal below it) ─▶ replay (journal above it) ─▶ holes for what is gone

A `Topic` stands where its `watermarks` say, and its records lie in `Run`s; both make their moves themselves.
All topics, the journal and the time are in the `core`, which operations take; `Engine` is what everything
above the log sees. A single thread owns it; nothing here locks or awaits.
"""
