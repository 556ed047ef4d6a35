"""Positions of consumers: in memory, in a file, in SQLite, at the server, or in a store of your own."""

from topics.client.cursors.cursor import Cursor, MemoryCursor
from topics.client.cursors.kept import FileCursor, ServerCursor, SqliteCursor

__all__ = ["Cursor", "FileCursor", "MemoryCursor", "ServerCursor", "SqliteCursor"]
