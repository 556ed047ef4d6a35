"""Records pushed to those who listen: watch sessions with their event streams, and WebSockets."""
