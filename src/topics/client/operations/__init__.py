"""The operations of the SDK, without I/O: generators that the blocking and the asyncio clients run."""
