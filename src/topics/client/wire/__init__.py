"""Between operations and the server: requests, answers, sockets, patience. Knows nothing of records."""
