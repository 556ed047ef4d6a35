"""The way in: from the text of a request to records that readers see.

    body ─▶ append_form (decode once; `append_request` checks what is more than plain) or arrow_batch;
            small ones, which come together from `flow.convoys`, gather (decode all at once)
         ─▶ append (admit, number; `batch` renders once)
         ─▶ commit_queue (one journal write, one sync for all that wait; `commit_loop` drives it)
         ─▶ publish ─▶ the writer's answer

Beside it: `idempotency` (a retry gets the first answer), `reservation` (no seq is given out twice, whatever
the power does), `group` (several topics, one frame), `operation` (what the queue holds). Every write came
through the door in `flow.doors` first.
"""
