"""What an operator does with a whole log.

    check    directory ─▶ check_files (check_journal, check_columns) ─▶ a node opened from either snapshot
    backup   backup_holds (a running server's files stay still) ─┐
             a stopped server's directory ───────────────────────┴▶ backup ─▶ backup_directory
    restore  backup_directory ─▶ restore ─▶ a node recovers it ─▶ cut to a moment, new epochs
    purge    purge (a running node) ─▶ purge_segments: deleted bytes leave the disk

`steps` is how they tell how far they are. The verbs of `cli` call these, and pass in what opens a node: nodes
are put together above this package.
"""
