"""The command line: one verb a file, or a family of them, which parses, calls and prints.

    main (imports the verb that is asked for) ─▶ parser
         ─▶ serve, up                       the server (serve alone imports http), and pipelines beside it
         ─▶ config                          what serve would use, and where each setting came from
         ─▶ key                             makes keys
         ─▶ backup, restore, check, compact ─▶ keep, on a node that is opened without a wire
         ─▶ pipeline                        runs pipelines on Spark
         ─▶ remote                          verbs that talk to a running server

`settings` reads flags, environment and topics.toml. `errors` has the exit codes and prints errors. `output`
prints results. `offline` is for the verbs that open a data directory.
"""
