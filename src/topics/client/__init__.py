"""The SDK, whose operations and transport the Spark connector uses, too. Imports only `topics.core`.

sync, topic, jobs and aio, aio_topic, aio_jobs (what programs call)
  →  operations (coroutines that do no I/O of their own), cursors
  →  wire (retries, requests, sockets)  →  the server
"""

from topics.client.errors import Refused, TopicsError, Unreachable

__all__ = ["Refused", "TopicsError", "Unreachable"]
