"""The way in: from the text of a request to records that readers see.

    body ─▶ batch (decode once) or arrow_batch ─▶ append (admit, assign seqs, render once) ─▶ append_payload
         ─▶ commit_queue (one journal write, one sync for all that wait) ─▶ publish ─▶ the writer's answer

Beside it: `idempotency` (a retry gets the first answer), `reservation` (no seq is given out twice, whatever
the power does), `group` (several topics, one frame), `operation` (what the queue holds).
"""
