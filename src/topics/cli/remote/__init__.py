"""Verbs that talk to a running server: each parses, asks, and prints the answer.

options (flags, profiles, keys) ─▶ client (the SDK's client, and its retries for a command)
read, tail ─▶ topic.items ─▶ formats (a record as a line)          write ─▶ client
listing (list, describe, ledger, cursors), create (and config TOPIC), remove (drop, delete),
queue, route, completion, status, bench, demo
"""
