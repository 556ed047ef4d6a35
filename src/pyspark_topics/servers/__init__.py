"""Several servers that are read and written as one: `url` = `http://a:4000,http://b:4000`.

    looking   all servers asked at once, each in a thread of its own; one that is silent holds up nobody
    servers   a client like that of one server: every request goes where its topic is

A topic is on one of them. Offsets say on which, because epochs are counted by each server for itself.
"""
