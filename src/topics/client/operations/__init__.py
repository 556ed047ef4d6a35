"""What the SDK does, without I/O: generators that yield what they need, for blocking and asyncio alike."""
