import pytest

from topics.core.errors import ConfigError
from topics.core.settings import Settings
from topics.http.admission.address import is_loopback, listen_address, refuse_exposure_without_keys
from topics.http.admission.auth import KeyRing


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", ("127.0.0.1", 4000)),
        ("", ("127.0.0.1", 4000)),
        ("localhost:81", ("localhost", 81)),
        ("0.0.0.0:0", ("0.0.0.0", 0)),
        ("[::1]:82", ("::1", 82)),
        ("[::1]", ("::1", 4000)),
        ("::1", ("::1", 4000)),
        ("::", ("::", 4000)),
        (":83", ("", 83)),
    ],
)
def test_the_host_may_hold_the_port(host, expected):
    assert listen_address(Settings(host=host, port=4000)) == expected


@pytest.mark.parametrize("host", ["localhost:", "localhost:http", "localhost:65536", "localhost:-1"])
def test_a_bad_port_in_the_host_is_refused(host):
    with pytest.raises(ConfigError):
        listen_address(Settings(host=host))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_loopback(host):
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "8.8.8.8", "::ffff:8.8.8.8", "no-such-host.invalid"])
def test_everything_else_is_exposed(host):
    assert not is_loopback(host)


def test_exposed_without_keys_needs_an_explicit_word():
    exposed, none = Settings(host="0.0.0.0"), KeyRing([])
    with pytest.raises(ConfigError):
        refuse_exposure_without_keys(exposed, none)
    refuse_exposure_without_keys(exposed, KeyRing.of(Settings(api_keys="secret")))
    refuse_exposure_without_keys(Settings(host="127.0.0.1"), none)
    refuse_exposure_without_keys(Settings(host="0.0.0.0", allow_insecure_no_auth=True), none)
