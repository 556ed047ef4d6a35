from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.core.errors import ConfigError
from topics.core.settings import Settings
from topics.http.admission.auth import (
    _REMEMBERED_HEADERS,
    ADMIN,
    ALL,
    DELETE,
    READ,
    WRITE,
    KeyRing,
    read_keys,
)


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


def test_remembered_headers_are_bounded():
    """A key may be written with any number of blanks, and an unknown one is not remembered at all."""
    ring = KeyRing.parse("one")
    for blanks in range(2 * _REMEMBERED_HEADERS):
        assert ring.by_header(b"Bearer" + b" " * (blanks + 1) + b"one") is ring.keys[0]
        assert ring.by_header(b"Bearer %d" % blanks) is None
    assert len(ring._by_header) == _REMEMBERED_HEADERS


def test_the_last_of_two_equal_secrets_counts():
    ring = KeyRing.parse("same:read,same:write")
    assert ring.by_secret(b"same") is ring.keys[1]
    assert ring.by_header(b"Bearer same") is ring.keys[1]


def test_a_key_shows_only_its_name():
    (key,) = KeyRing.parse("hidden").keys
    assert repr(key) == f"<ApiKey {sha256(b'hidden').hexdigest()[:8]}>"


def keys_in(tmp_path, text):
    (tmp_path / "keys").write_text(text)
    return read_keys(Settings(api_keys_file=str(tmp_path / "keys")))


def test_a_file_turns_authentication_on_even_when_it_is_empty(tmp_path):
    (tmp_path / "keys").write_text("# none yet\n")
    ring = KeyRing.of(Settings(api_keys_file=str(tmp_path / "keys")))
    assert (ring.enabled, ring.keys) == (True, [])
    both = KeyRing.of(Settings(api_keys="a", api_keys_file=str(tmp_path / "keys")))
    assert both.by_secret(b"a") is not None
    assert not KeyRing.of(Settings()).enabled


def test_a_file_that_cannot_be_read(tmp_path):
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(ConfigError, match="TOPICS_API_KEYS_FILE: cannot read"):
            read_keys(Settings(api_keys_file=str(path)))


def test_replacing_keys_leaves_those_alone_that_stay(tmp_path):
    ring = KeyRing(keys_in(tmp_path, "a=one\nb=two:read\nc=three::x.\n"))
    one, two, three = ring.keys
    assert ring.by_header(b"Bearer two") is two
    gone = ring.replace(keys_in(tmp_path, "new=four\nA=one\nb=two:write\nc=three::x.\nc=three::x.\n"))
    assert gone == {two}
    assert (two.revoked, one.revoked, three.revoked) == (True, False, False)
    assert ring.by_secret(b"one") is one
    assert one.name == "A"
    assert ring.by_secret(b"three") is three
    # The same secret with other rights is another key.
    changed = ring.by_header(b"Bearer two")
    assert changed is not two
    assert changed.scopes == WRITE
    four = ring.by_secret(b"four")
    assert four.name == "new"
    assert ring.replace([]) == {one, three, changed, four}
    assert ring.enabled
    assert ring.by_header(b"Bearer one") is None


@given(st.text())
def test_parsing_any_text_either_works_or_says_why(text):
    try:
        ring = KeyRing.parse(text)
    except ConfigError:
        return
    assert ring.enabled == bool(ring.keys)
