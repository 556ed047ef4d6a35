"""The comparison finds no difference between a version and itself, and finds one where there is one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.compare.__main__ import Campaign, report
from tests.compare.servers import Answer, Normal, Server

PYTHON = Path(sys.executable)


@pytest.mark.parametrize("is_turns", [False, True])
def test_a_version_does_not_differ_from_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, is_turns: bool
) -> None:
    servers = Server(PYTHON, tmp_path / "old"), Server(PYTHON, tmp_path / "new")
    campaign = Campaign(servers, seed=3, is_turns=is_turns, most_differences=1)
    try:
        campaign.run(300, None)
    finally:
        for server in servers:
            server.stop(kill=True)
    code = report(campaign, 0.0)
    out = capsys.readouterr().out
    assert code == 0, out
    assert campaign.requests >= 300
    assert "0 differences" in out


def of(body: bytes, head: bytes = b"HTTP/1.1 200 OK\r\n", status: int = 200) -> tuple[int, bytes, bytes]:
    return Normal(has_others=False).of(Answer(status, head, body))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b'{"$ts":1795000000000,"data":1}', b'{"$ts":1795000000017,"data":1}'),
        (b'{"performance":{"fsync_ms":0.1}}', b'{"performance":{"fsync_ms":12}}'),
        (b'{"lease_id":"lease_0123456789abcdef"}', b'{"lease_id":"lease_fedcba9876543210"}'),
        (b'{"epoch":1017}', b'{"epoch":1018}'),
    ],
)
def test_times_durations_and_ids_do_not_count(one: bytes, other: bytes) -> None:
    assert of(one) == of(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b'{"head_seq":3}', b'{"head_seq":4}'),
        (b'{"$ts":1795000000000}', b'{"$ts":0}'),
        (b'{"performance":{"records_scanned":1}}', b'{"performance":{"records_scanned":2}}'),
        (b'{"a":1,"b":2}', b'{"b":2,"a":1}'),
        (b'[{"epoch":1017},{"epoch":1017}]', b'[{"epoch":1017},{"epoch":1018}]'),
        (
            b'["lease_0123456789abcdef","lease_0123456789abcdee"]',
            b'["lease_0123456789abcdef","lease_0123456789abcdef"]',
        ),
    ],
)
def test_everything_else_counts(one: bytes, other: bytes) -> None:
    assert of(one) != of(other)


def test_heads_count_but_for_the_date_and_the_length() -> None:
    one = b"HTTP/1.1 200 OK\r\nDate: Mon\r\nContent-Length: 1\r\n"
    assert of(b"1", one) == of(b"1", one.replace(b"Mon", b"Tue"))
    assert of(b"1", one) != of(b"1", one + b"Retry-After: 1\r\n")
