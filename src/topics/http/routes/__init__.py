"""The routes, one resource a file: decode a request, call the engine, encode the reply.

A handler is a function below `@routes.add(…)`. It gets the `service` (the node, and what routes share) and
the `Exchange` of the request; `fields` are what requests and answers hold. Records: `appends`, `deletes`,
`arrow_append`, `reads`, `scan`, `segments`. Subscriptions: `watch`, `tail`, `socket`. Queues: `queues` and
`work`.
"""
