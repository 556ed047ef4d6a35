"""How fast, and against whom: one area a file, peers started beside us and measured in turns.

__main__ ─▶ an area's `run(session)` ─▶ figures ─▶ table, JSON, README
              ├─ rounds:    contender A, contender B, A, B, …; medians
              ├─ load:      one generator for everybody, in a process of its own (generator)
              └─ contenders: a real `topics serve` and a real `redis-server`, same payloads
"""
