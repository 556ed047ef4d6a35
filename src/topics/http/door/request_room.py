"""Room for large request bodies: each may be as large as is allowed, but not all of them at once."""

from topics.values import limit_reached

# So many bodies of the largest size, over all connections.
LARGEST_BODIES = 32
# Smaller ones are not counted: a connection can have one of them in memory, and connections are counted.
SMALL_BYTES = 64 * 1024


class RequestRoom:
    """Bytes that are held by requests not answered yet."""

    def __init__(self, max_body_bytes: int) -> None:
        self.max_bytes = LARGEST_BODIES * max_body_bytes
        self.held = 0

    def take(self, count: int) -> None:
        if self.held + count > self.max_bytes:
            raise limit_reached("max_request_bytes", self.max_bytes)
        self.held += count

    def give(self, count: int) -> None:
        self.held -= count
