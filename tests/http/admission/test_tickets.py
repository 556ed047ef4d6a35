"""Tickets: good once, for one path, and for a minute."""

from __future__ import annotations

import pytest

from topics.core.errors import ApiError
from topics.core.settings import Settings
from topics.http.admission.auth import LIFETIME_S, MOST_TICKETS, KeyRing, Tickets, without_ticket

PATH = b"/v0/tail?topic=a&topic=b@3"
KEY = KeyRing.of(Settings(api_keys="secret")).keys[0]


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tickets(clock: Clock) -> Tickets:
    return Tickets(clock)


def used(path: bytes, ticket: str) -> bytes:
    return path + b"&ticket=" + ticket.encode()


def test_a_ticket_is_good_once(tickets: Tickets) -> None:
    ticket = tickets.issue(KEY, PATH)
    assert tickets.redeem(ticket, used(PATH, ticket)) is KEY
    assert tickets.redeem(ticket, used(PATH, ticket)) is None


def test_it_is_for_that_very_path(tickets: Tickets) -> None:
    ticket = tickets.issue(KEY, PATH)
    for other in (b"/v0/tail?topic=a", b"/v0/tail?topic=b@3&topic=a", PATH + b"&limit=1", b"/v0/tail"):
        assert tickets.redeem(ticket, used(other, ticket)) is None
    assert tickets.redeem(ticket, used(PATH, ticket) + b"&last_event_id=x") is KEY
    plain = tickets.issue(KEY, b"/v0/watch/w")
    assert tickets.redeem(plain, b"/v0/watch/w?ticket=" + plain.encode()) is KEY


def test_a_long_path_is_not_kept(tickets: Tickets) -> None:
    path = b"/v0/tail?topic=" + b"a" * 1_000_000
    ticket = tickets.issue(KEY, path)
    (kept,) = tickets._open.values()
    assert len(kept.path) <= 64
    assert tickets.redeem(ticket, used(path[:-1], ticket)) is None
    assert tickets.redeem(ticket, used(path, ticket)) is KEY


def test_it_ends(tickets: Tickets, clock: Clock) -> None:
    early, late = tickets.issue(KEY, PATH), tickets.issue(KEY, PATH)
    clock.now += LIFETIME_S - 0.001
    assert tickets.redeem(early, PATH) is KEY
    clock.now += 0.001
    assert tickets.redeem(late, PATH) is None


def test_it_ends_with_its_key(tickets: Tickets) -> None:
    key = KeyRing.of(Settings(api_keys="other")).keys[0]
    ticket = tickets.issue(key, PATH)
    key.revoke()
    assert tickets.redeem(ticket, PATH) is None


def test_there_are_only_so_many(tickets: Tickets, clock: Clock) -> None:
    for _ in range(MOST_TICKETS):
        tickets.issue(KEY, PATH)
    with pytest.raises(ApiError) as refused:
        tickets.issue(KEY, PATH)
    assert refused.value.detail == {"limit": "max_tickets", "max": MOST_TICKETS}
    clock.now += LIFETIME_S
    tickets.issue(KEY, PATH)
    assert len(tickets._open) == 1


def test_what_a_page_adds_is_not_part_of_the_path() -> None:
    assert without_ticket(b"/a?ticket=1&x=2&last_event_id=3") == b"/a?x=2"
    assert without_ticket(b"/a?ticket=1") == without_ticket(b"/a?") == b"/a"
    assert without_ticket(b"/a?tickets=1") == b"/a?tickets=1"
