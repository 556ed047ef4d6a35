import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.core.names import is_router_name, is_topic_name
from topics.http.routing import Route, RouteTree, path_of


def ignore(exchange):
    pass


TEMPLATES = [
    ("GET", "/v0/topics"),
    ("PUT", "/v0/topics/:topic"),
    ("GET", "/v0/topics/:topic"),
    ("POST", "/v0/topics/:topic/diff"),
    ("PUT", "/v0/topics/:topic/cursors/:consumer"),
    ("GET", "/v0/routers/:router"),
    ("GET", "/v0/watch/:wid"),
    ("GET", "/"),
]


@pytest.fixture(scope="module")
def tree():
    return RouteTree([Route(method=method, template=path, handler=ignore) for method, path in TEMPLATES])


def test_templates(tree):
    for method, template in TEMPLATES:
        match = tree.find(method.encode(), template.replace(":", "").encode())
        assert match.route.template == template


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (b"a.b:c-d_e", "a.b:c-d_e"),
        (b"a%2Eb%3ac%2D%3E", "a.b:c->"),
        (b"a>b", "a>b"),
        (b"a%2Fb", "a/b"),
        (b"%C3%A9", "é"),
        (b"%zz", "%zz"),
        (b"%", "%"),
        (b"%ff", "\ufffd"),
    ],
)
def test_names_are_decoded_after_splitting(tree, path, name):
    for _ in range(2):
        assert tree.find(b"GET", b"/v0/topics/" + path).name == name


@pytest.mark.parametrize(
    "path",
    [
        b"/v0/topics/", b"/v0/topics//", b"//v0/topics", b"/v0", b"/V0/topics", b"/v0/topics/a/", b"*", b"",
        b"/v0/topics/a/diff/", b"/v0/topics/a/b/c", b"/v0/topics//diff", b"host:80", b"/v0/topics/a/cursors",
    ],
)  # fmt: skip
def test_unknown_paths(tree, path):
    match = tree.find(b"GET", path)
    assert match.route is None
    assert not match.allow


def test_a_known_path_knows_its_methods(tree):
    match = tree.find(b"DELETE", b"/v0/topics/a")
    assert match.route is None
    assert match.allow == b"GET, HEAD, PUT"
    assert match.name == "a"


def test_literals_may_be_encoded_and_targets_may_be_urls(tree):
    assert tree.find(b"GET", b"/v0/t%6fpics").route.template == "/v0/topics"
    assert tree.find(b"GET", b"http://h:1/v0/topics?x=/y").route.template == "/v0/topics"
    assert tree.find(b"GET", b"http://h:1").route.template == "/"
    assert path_of(b"/a#b?c") == b"/a"


def test_which_names_fall_under_prefixes(tree):
    assert tree.find(b"GET", b"/v0/topics/a").restricted
    assert tree.find(b"GET", b"/v0/routers/a").restricted
    assert not tree.find(b"GET", b"/v0/watch/a").restricted
    further = tree.find(b"PUT", b"/v0/topics/a/cursors/b")
    assert (further.restricted, further.name, further.params) == (True, "a", ("b",))


def test_two_routes_in_one_place_are_a_mistake():
    route = Route(method="GET", template="/a", handler=ignore)
    with pytest.raises(ValueError):
        RouteTree([route, route])


def test_memory_of_targets_is_bounded(tree):
    for number in range(20_000):
        tree.find(b"GET", b"/v0/topics/%d" % number)
    assert len(tree._remembered) <= 8192


@given(st.binary())
def test_any_bytes_resolve_to_something(data):
    tree = RouteTree([Route(method="GET", template="/v0/topics/:topic", handler=ignore)])
    assert tree.find(b"GET", data).route is None
    name = tree.find(b"GET", b"/v0/topics/" + data).name
    # Whatever cannot be decoded must not turn into a name that could exist.
    if is_topic_name(name) or is_router_name(name):
        name.encode("ascii")
    name.encode()
