"""The routes, one resource a file: decode a request, call the engine, encode the reply.

Handlers know only their `Exchange`. They share `service` (the engine) and `fields` (what requests hold).
Records: `writes`, `arrow_append`, `reads`, `scan`, `segments`. Subscriptions: `watch`, `tail`,
`socket`. Queues: `queues`, `redrive`, `work`.
"""
