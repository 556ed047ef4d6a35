"""How records leave a topic, and who is told.

    deletion (somebody asked: silent) ─▶ tag_search (which records carry the tag) ─┐
    retention (cap or age: announced) ─────────────────────────────────────────────┴▶ removal ─▶ ledger

`tags` is the index that answers which records in memory carry a tag; the ledger keeps why each seq below the
floor is gone.
"""
