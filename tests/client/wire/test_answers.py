"""Answers, in whatever pieces they come: heads that are known are not parsed again, and mean the same."""

from __future__ import annotations

import pytest

from topics.client.wire.answers import AnswerParser, KnownHeads
from topics.client.wire.requests import Response


def answer(body: bytes, *more: bytes, status: bytes = b"200 OK") -> bytes:
    lines = [b"HTTP/1.1 " + status, b"Content-Length: %d" % len(body), *more]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def taken(parser: AnswerParser, *pieces: bytes) -> Response:
    for piece in pieces:
        assert not parser.answers
        parser.feed(piece)
    return parser.take()


def test_a_head_that_was_seen_before_says_the_same_again() -> None:
    known: KnownHeads = {}
    parser = AnswerParser(known)
    first = taken(parser, answer(b"one", b"X-Request-Id: 7"))
    assert len(known) == 1
    second = taken(parser, answer(b"two", b"X-Request-Id: 7"))
    assert (first.status, first.body, second.status, second.body) == (200, b"one", 200, b"two")
    assert first.headers == second.headers == {"content-length": "3", "x-request-id": "7"}
    other = taken(AnswerParser(known), answer(b"six", b"X-Request-Id: 8", status=b"503 Away"))
    assert (other.status, other.headers["x-request-id"], other.body) == (503, "8", b"six")


def test_a_known_head_may_come_in_pieces_or_without_its_body() -> None:
    parser = AnswerParser({})
    whole = answer(b"a body")
    assert taken(parser, whole).body == b"a body"
    for cut in range(1, len(whole)):
        assert taken(parser, whole[:cut], whole[cut:]).body == b"a body"
    assert taken(parser, *[whole[at : at + 1] for at in range(len(whole))]).body == b"a body"
    assert taken(parser, whole).body == b"a body"


def test_a_head_is_not_known_by_one_that_begins_alike() -> None:
    # One byte of the end of the head, where so many bytes of a body would make the lengths agree.
    filler = b"X-Filler: " + b"x" * 20
    head_bytes = len(answer(b"", filler)) - 4 + 1  # with a length of two digits
    body = b"b" * (head_bytes - 2)
    assert len(b"%d" % len(body)) == 2
    parser = AnswerParser({})
    whole = answer(body, filler)
    assert taken(parser, whole).body == body
    cut = whole.index(b"\r\n\r\n") + 1
    assert taken(parser, whole[:cut], whole[cut:]).body == body


@pytest.mark.parametrize(
    "line", [b"Connection: close", b"connection: Close"], ids=["as usual", "in other letters"]
)
def test_a_connection_that_ends_with_its_answer_is_not_ready_for_another(line: bytes) -> None:
    known: KnownHeads = {}
    for _ in range(2):
        parser = AnswerParser(known)
        assert taken(parser, answer(b"x", line)).body == b"x"
        assert not parser.is_ready


def test_a_byte_of_another_answer_makes_a_connection_unusable() -> None:
    parser = AnswerParser({})
    assert taken(parser, answer(b"x")).body == b"x"
    assert parser.is_ready
    parser.feed(answer(b"unasked")[:9])
    assert not parser.is_ready


def test_an_interim_answer_is_passed_over() -> None:
    parser = AnswerParser({})
    for _ in range(2):
        assert taken(parser, b"HTTP/1.1 100 Continue\r\n\r\n" + answer(b"x")).body == b"x"


def test_known_heads_have_a_bound() -> None:
    known: KnownHeads = {}
    parser = AnswerParser(known)
    for number in range(1000):
        taken(parser, answer(b"x", b"X-Request-Id: %d" % number))
    assert len(known) <= 256


@pytest.mark.parametrize("more", [answer(b"two"), answer(b"two")[:5], b"HTTP"], ids=["whole", "part", "word"])
def test_two_answers_to_one_question_are_none(more: bytes) -> None:
    for knows in (False, True):
        parser = AnswerParser({})
        if knows:
            taken(parser, answer(b"one"))
        parser.feed(answer(b"one") + more)
        with pytest.raises(ValueError, match="more than it was asked"):
            parser.take()


def test_answers_of_one_length_are_told_apart_by_their_heads() -> None:
    parser = AnswerParser({})
    first, second = answer(b"one", b"X-Request-Id: 7"), answer(b"two", b"X-Request-Id: 8")
    for whole in (first, second):
        taken(parser, whole)
    for whole, told in ((first, "7"), (first, "7"), (second, "8"), (second, "8"), (first, "7")):
        parser.room[: len(whole)] = whole
        parser.received(len(whole))
        said = parser.take()
        assert (said.headers["x-request-id"], said.body) == (told, whole[-3:])


def test_answers_in_turn_are_the_same_however_they_are_cut() -> None:
    said = [answer(b"one"), answer(b"two"), answer(b"", b"X: y"), answer(b"three", status=b"503 Away")]
    whole = b"HTTP/1.1 100 Continue\r\n\r\n".join(said)
    expected = [(200, b"one"), (200, b"two"), (200, b""), (503, b"three")]
    known: KnownHeads = {}
    for first in range(len(whole) + 1):
        for size in (1, 7, len(whole)):
            parser = AnswerParser(known if first % 2 else {})
            for piece in [whole[:first], *(whole[at : at + size] for at in range(first, len(whole), size))]:
                parser.feed(piece)
            assert [(one.status, one.body) for one in parser.answers] == expected
            assert parser.answers[3].headers == {"content-length": "5"}
            assert parser.keeps
            assert parser.is_idle


def test_nothing_is_heard_behind_the_last_of_the_answers() -> None:
    parser = AnswerParser({})
    with pytest.raises(ValueError, match="not HTTP"):
        parser.feed(answer(b"one") + answer(b"two", b"Connection: close") + answer(b"three"))
    assert [one.body for one in parser.answers] == [b"one", b"two"]
    assert not parser.keeps


def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    parser = AnswerParser({})
    parser.feed(b"HTTP/1.1 200 OK\r\n\r\nto the end")
    assert not parser.answers
    assert parser.finish()
    assert parser.take().body == b"to the end"
    assert not parser.is_ready


def test_a_stream_is_taken_as_it_comes() -> None:
    parser = AnswerParser({})
    parser.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
    assert (parser.has_head, parser.head().status, parser.take_body()) == (True, 200, b"one")
    parser.feed(b"3\r\ntwo\r\n0\r\n\r\n")
    assert (parser.take_body(), parser.take_body(), parser.is_ready) == (b"two", b"", True)
