"""Admission of requests: everything that is decided before a route sees a request.

    connection ─▶ limits ─▶ admit (host, key, scope, name, route, readiness, size) ─▶ routes

`address` is where the server listens. `callers` are the hosts and web pages that may ask. `auth` holds API
keys and tickets. `readiness` keeps data requests out during recovery and shutdown.
"""
