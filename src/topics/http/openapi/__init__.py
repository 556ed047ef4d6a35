"""The OpenAPI document: what this server can be asked, made from its routes when somebody first asks for it.

    routes ─▶ document ◀─ operations, bulk_operations (what a route is for, in the words of `describing`)
                       ◀─ models, bulk_models         (what requests and answers hold)
                       ◀─ details                     (what models cannot say)
                       ◀─ socket_messages             (what is said over the WebSocket)

Only `routes` is imported before the first request; the server never decodes or encodes with these models.
"""
