"""One topic's truth: what was written, what is still live, and what a reader must be told.

    write:  body ─▶ batch (decode once) ─▶ topic (admit, assign seqs, render once) ─▶ journal ─▶ publish
    read:   cursor ─▶ gap (watermarks) ─▶ locate (runs) ─▶ filter ─▶ rows as they were rendered
    keep:   runs ─▶ sealing (segments) ─▶ checkpoint (snapshot) ─▶ journal and files nobody needs are let go
    start:  snapshot ─▶ reloading (journal below it) ─▶ applying (journal above it) ─▶ doubts (what is gone)

`Engine` owns all topics and the journal. A single thread owns it; nothing here locks or awaits.
"""
