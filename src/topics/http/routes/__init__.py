"""One resource a file: decode, call, encode.

Handlers know only their `Exchange`; they share `service` (the engine behind them), `fields` (what bodies
hold) and `paging` (lists). What has to do with records lies in `records`, what goes on for as long as its
client listens in `streams`, and what workers do with a queue in `jobs`.
"""
