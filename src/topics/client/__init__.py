"""The small synchronous HTTP client behind the Spark connector.

    Client (one method per route)  →  Connection (keep-alive, retries)  →  the server

Every request it sends can be repeated without harm, so a server that restarts is waited for. Imports only
`topics.values`; callers get plain dictionaries, and the bytes of Arrow streams.
"""

from topics.client.client import Client
from topics.client.errors import Refused, TopicsError, Unreachable

__all__ = ["Client", "Refused", "TopicsError", "Unreachable"]
