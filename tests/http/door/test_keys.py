from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.http.door.keys import ADMIN, ALL, DELETE, READ, WRITE, KeyRing
from topics.values.errors import ConfigError


@pytest.mark.parametrize("text", ["", "   ", ",", " , ,"])
def test_blank_configuration_turns_authentication_off(text):
    assert not KeyRing.parse(text).enabled


@pytest.mark.parametrize(
    ("entry", "scopes", "prefixes"),
    [
        ("s", ALL, ()),
        ("s:", ALL, ()),
        ("s::", ALL, ()),
        ("s:read", READ, ()),
        ("s:R+Del", READ | DELETE, ()),
        ("s:rw+admin", READ | WRITE | ADMIN, ()),
        ("s:w+", WRITE, ()),
        ("s::a.|b:c", ALL, ("a.", "b:c")),
        ("s:d:x:y:z", DELETE, ("x:y:z",)),
        ("s:a:|", ADMIN, ()),
    ],
)
def test_entry_forms(entry, scopes, prefixes):
    (key,) = KeyRing.parse(f" {entry} ,").keys
    assert (key.scopes, key.prefixes) == (scopes, prefixes)
    assert key.digest == sha256(b"s").digest()


@pytest.mark.parametrize(
    "text",
    ["topsecret:reed", ":read", "::pre", ":", "ok,topsecret:+", "topsecret:read+x", "topsecret: :x"],
)
def test_bad_entries_abort_without_showing_the_secret(text):
    with pytest.raises(ConfigError) as caught:
        KeyRing.parse(text)
    assert "topsecret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_prefixes_restrict_names():
    restricted, free = KeyRing.parse("a::x.|y,b").keys
    assert restricted.allows("x.1")
    assert restricted.allows("y")
    assert not restricted.allows("x")
    assert not restricted.allows("")
    assert free.allows("anything")


def test_keys_are_found_by_header():
    ring = KeyRing.parse("one,two:r")
    for _ in range(2):
        assert ring.by_header(b"Bearer two") is ring.keys[1]
        assert ring.by_header(b"bearer  one ") is ring.keys[0]
        for wrong in (b"", b"Bearer", b"Bearer ", b"Basic one", b"one", b"Bearer three", b"Bearer one two"):
            assert ring.by_header(wrong) is None


def test_the_last_of_two_equal_secrets_counts():
    ring = KeyRing.parse("same:read,same:write")
    assert ring.by_secret(b"same") is ring.keys[1]
    assert ring.by_header(b"Bearer same") is ring.keys[1]


def test_a_key_shows_only_its_place():
    (key,) = KeyRing.parse("hidden").keys
    assert repr(key) == "<ApiKey 1>"


@given(st.text())
def test_parsing_any_text_either_works_or_says_why(text):
    try:
        ring = KeyRing.parse(text)
    except ConfigError:
        return
    assert ring.enabled == bool(ring.keys)
