"""Keys as they are written in a file: names, hashes, and what is refused."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.core.errors import ConfigError
from topics.core.key_entries import SCOPES, parse_key_file, parse_keys

DIGEST = sha256(b"s3cret").digest()
HEX = DIGEST.hex()
ALL = frozenset(SCOPES)


@pytest.mark.parametrize(
    ("line", "name", "scopes", "prefixes"),
    [
        ("s3cret", HEX[:8], ALL, ()),
        ("ci=s3cret", "ci", ALL, ()),
        (" ci = s3cret ", "ci", ALL, ()),
        ("s3cret:read", HEX[:8], {"read"}, ()),
        ("ci=s3cret:rw+d:a.|b:=c", "ci", {"read", "write", "delete"}, ("a.", "b:=c")),
        ("s3cret::a=b", HEX[:8], ALL, ("a=b",)),
        (f"sha256:{HEX}", HEX[:8], ALL, ()),
        (f"ci=sha256:{HEX}", "ci", ALL, ()),
        (f"ci=SHA256:{HEX.upper()}:read:x.", "ci", {"read"}, ("x.",)),
        (f"sha256:{HEX}::x.|y.", HEX[:8], ALL, ("x.", "y.")),
    ],
)
def test_forms_of_a_line(line: str, name: str, scopes: set[str], prefixes: tuple[str, ...]) -> None:
    (entry,) = parse_key_file(f"# a remark\n\n{line}\r\n  \n")
    assert (entry.digest, entry.name, entry.scopes, entry.prefixes) == (DIGEST, name, scopes, prefixes)


@pytest.mark.parametrize(
    "line",
    [
        "hush:reed",
        "ci=",
        "ci=:read",
        ":read",
        "=hush",
        "my key=hush",
        "c2VjcmV0=",
        "c2VjcmV0==",
        "hush # of the laptop",
        "sha256:hush",
        "sha256:",
        f"sha256:{HEX}0",
        f"sha256:{HEX[:-1]}",
        f"ci=sha256:{HEX}:reed",
        f"{'n' * 65}=hush",
    ],
)
def test_a_line_that_cannot_be_read_is_named_and_not_shown(line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_key_file(f"good\n{line}\n")
    assert str(caught.value).startswith("TOPICS_API_KEYS_FILE: line 2")
    assert "hush" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_in_the_environment_there_are_neither_names_nor_hashes() -> None:
    (entry,) = parse_keys("a=b")
    assert entry.digest == sha256(b"a=b").digest()
    with pytest.raises(ConfigError):
        parse_keys(f"sha256:{HEX}")


@given(st.text())
def test_any_file_is_read_or_refused(text: str) -> None:
    try:
        entries = parse_key_file(text)
    except ConfigError as error:
        refusal = str(error)
    else:
        refusal = ""
        assert all(entry.scopes and len(entry.digest) == 32 for entry in entries)
    assert "\n" not in refusal
