"""Pushing records to watchers.

    commit ─▶ topic.wake ─▶ fanout (whose turn it is) ─▶ delivery (what one stream is told next) ─▶ the stream

`position` says how far a stream has come in each of its topics; `sessions` outlive their streams.
"""
