"""One topic's truth: what was written, what is still live, and what a reader must be told.

    write    body ─▶ batch ─▶ append (admit, assign seqs, render once) ─▶ commit queue ─▶ journal ─▶ publish
    read     cursor ─▶ gap (watermarks) ─▶ locate (runs) ─▶ filter ─▶ rows as they were rendered
    remove   deletes, caps and age ─▶ floor, loss line, ledger
    seal     runs ─▶ segments ─▶ snapshot ─▶ journal and files that no snapshot needs are let go
    recover  snapshot ─▶ reload (journal below it) ─▶ replay (journal above it) ─▶ holes for what is gone

`Engine` owns all topics and the journal. A single thread owns it; nothing here locks or awaits.
"""
