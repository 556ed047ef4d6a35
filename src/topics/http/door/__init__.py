"""Who may come in, and how much: everything that is decided before a route sees a request.

    connection ─▶ connection_limit ─▶ admission (key, place, scope, name, route, readiness, size) ─▶ a route

`required_headers` says which headers a request needs; `keys` are the API keys and their scopes; `readiness`
keeps data requests out while recovering and draining; `stream_slots` bounds the streams; `listen_address`
refuses to be open to strangers by accident.
"""
