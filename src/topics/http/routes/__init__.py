"""One resource a file: decode, call, encode.

Handlers know only their `Exchange`; they share `service` (the engine behind them), `fields` (what bodies
hold) and `paging` (lists).
"""
