from topics.http.response_heads import JSON, Heads


def test_heads_carry_a_date_and_end_where_the_length_goes():
    head = Heads().json_200
    assert head.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nDate: ")
    assert head.endswith(b" GMT\r\nContent-Length: ")


def test_extra_headers_and_connection():
    head = Heads().before_length(429, JSON, [(b"Retry-After", b"1")], b"close")
    assert b"\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: " in head


def test_unbounded_heads():
    chunked = Heads().unbounded(b"text/event-stream", [(b"X", b"y")], chunked=True, connection=b"close")
    assert chunked.endswith(b"X: y\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n")
    plain = Heads().unbounded(b"text/event-stream", chunked=False, connection=b"close")
    assert b"Transfer-Encoding" not in plain
    assert plain.endswith(b"\r\n\r\n")
