"""Bytes on disk. Nothing here knows what a tombstone is.

    frame ──▶ journal ──▶ (sealed in the background) ──▶ segment
                 │                                          │
                 └────────── snapshot: where to start ──────┘
                                    │
                    journal reader: frames back, in order, damage announced

All disk access goes through `filesystem.Filesystem`, so that a test can put a simulated disk under it.
File names are numbers; a topic's name never becomes a path.
"""
