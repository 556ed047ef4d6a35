"""The SDK, and the small client behind the Spark connector. Imports only `topics.values`.

sync, topic, jobs and aio, aio_topic, aio_jobs (what programs call)
  →  operations (generators that do no I/O), cursors
  →  wire (patience, requests, sockets)  →  the server
"""

from typing import TYPE_CHECKING, Any

from topics.client.errors import Refused, TopicsError, Unreachable

if TYPE_CHECKING:
    from topics.client.client import Client

__all__ = ["Client", "Refused", "TopicsError", "Unreachable"]


def __getattr__(name: str) -> Any:
    # The client of the connector brings http.client and email along, which programs with the SDK do without.
    if name == "Client":
        from topics.client.client import Client

        return Client
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
