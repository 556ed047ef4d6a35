"""Verbs that talk to a running server: each parses, asks, and prints what came.

    options (flags, profiles, keys) ─▶ server (one connection, heard within a second)
    write ─▶ server        read, tail ─▶ feed (pages, gaps, what follows) ─▶ formats (a record as a line)
    looking (list, describe, ledger), settings (create, config), removing (drop, delete), cursors,
    queue, route, completion, status, bench, demo

`output` is where all of them print: an object a line for machines, tables for people.
"""
