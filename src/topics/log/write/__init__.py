"""The write path, in the order in which records pass it.

    append          requests are decoded, admitted, encoded and given seqs, once for all that a turn brings
    idempotency     a repeated request gets the result of the first one
    reservation     no seq is assigned twice, whatever a power failure takes
    commit_queue    one journal write, and one sync, for all operations that wait; `commit_loop` drives it
    refusals        what the disk does not take fails, and leaves no trace

`group` commits appends to several topics together. `segment_import` takes appends that are too large for the
journal. `arrow_batch` checks records that arrive as Arrow columns. `operation` is what the queue holds.
"""
