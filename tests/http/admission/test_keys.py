from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from topics.core.errors import ConfigError
from topics.core.settings import Settings
from topics.http.admission.auth import (
    _REMEMBERED_HEADERS,
    WRITE,
    KeyRing,
    read_keys,
)


def test_remembered_headers_are_bounded():
    """A key may be written with any number of blanks, and an unknown one is not remembered at all."""
    ring = KeyRing.of(Settings(api_keys="one"))
    for blanks in range(2 * _REMEMBERED_HEADERS):
        assert ring.by_header(b"Bearer" + b" " * (blanks + 1) + b"one") is ring.keys[0]
        assert ring.by_header(b"Bearer %d" % blanks) is None
    assert len(ring._by_header) == _REMEMBERED_HEADERS


def test_the_last_of_two_equal_secrets_counts():
    ring = KeyRing.of(Settings(api_keys="same:read,same:write"))
    assert ring.by_secret(b"same") is ring.keys[1]
    assert ring.by_header(b"Bearer same") is ring.keys[1]


def test_a_key_shows_only_its_name():
    (key,) = KeyRing.of(Settings(api_keys="hidden")).keys
    assert repr(key) == f"<ApiKey {sha256(b'hidden').hexdigest()[:8]}>"


def keys_in(tmp_path, text):
    (tmp_path / "keys").write_text(text)
    return read_keys(Settings(api_keys_file=str(tmp_path / "keys")))


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
        ring = KeyRing.of(Settings(api_keys=text))
    except ConfigError:
        return
    assert ring.enabled == bool(ring.keys)
