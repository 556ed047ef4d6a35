"""Pushing records to watchers.

    commit ─▶ topic.wake ─▶ fanout (whose turn it is) ─▶ delivery (what one stream is told next) ─▶ the stream

`sessions` outlive their streams, and know how far each stream has come in its topics.
"""
