"""The operations of the SDK: coroutines that await a transport, blocking or on asyncio."""
