"""The SDK, whose operations and transport the Spark connector uses, too. Imports only `topics.core`.

sync, topic, jobs and aio, aio_topic, aio_jobs (what programs call)
  →  operations (generators that do no I/O), cursors
  →  wire (patience, requests, sockets)  →  the server
"""

from topics.client.errors import Refused, TopicsError, Unreachable

__all__ = ["Refused", "TopicsError", "Unreachable"]
