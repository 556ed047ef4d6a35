"""The command line: one verb a file, which parses, calls and prints.

    main ─▶ serve, up                       the server (serve alone imports http), and pipelines beside it
         ─▶ config                          what serve would use, and where each setting came from
         ─▶ key                             makes keys
         ─▶ backup, restore, check, compact ─▶ keep, on a node that is opened without a wire
         ─▶ cursors, pipeline               clients of a running server

`settings` reads flags, environment and topics.toml; `work` is what they share: mistakes as one line, results
as text or JSON, progress bars.
"""
