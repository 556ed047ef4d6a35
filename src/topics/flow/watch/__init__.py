"""Pushing records to watchers.

    commit ─▶ topic.wake ─▶ fanout (whose turn it is; a feed is all watchers of one topic)
           ─▶ subscription (what one stream is told next) ─▶ the stream

`sessions` outlive their streams.
"""
