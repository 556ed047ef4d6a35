"""How records leave a topic, and which readers are told.

    deletion (a client asked: silent) ─▶ search (which records it names) ─▶ removal ─▶ ledger
                                             cap or age (announced) ────────┘

One verb for each way: a client deletes, a cap evicts, age expires, damage or a crash loses, and a whole topic
is dropped. Removing is what all of them have in common: the floor rises, totals fall. Memory and files are
released by what no longer needs them, which takes nothing from readers.

`tags` is the index that answers which records in memory carry a tag; the ledger keeps why each seq below the
floor is gone.
"""
