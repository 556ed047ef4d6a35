"""Jobs of a queue: claimed, finished, given back; and those who wait for some."""
