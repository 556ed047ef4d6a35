"""Where consumers stand: in memory, in a file, in SQLite, at the server, or wherever you keep it."""

from topics.client.cursors.cursor import Cursor, MemoryCursor
from topics.client.cursors.kept import FileCursor, ServerCursor, SqliteCursor

__all__ = ["Cursor", "FileCursor", "MemoryCursor", "ServerCursor", "SqliteCursor"]
