"""Enough of PromQL to say which series an expression uses, with which labels, inside which functions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

AGGREGATIONS = {"sum", "min", "max", "avg", "count", "topk", "bottomk", "quantile"}
ON_COUNTERS = {"rate", "irate", "increase"}
ON_GAUGES = {"deriv", "delta", "predict_linear"}
FUNCTIONS = AGGREGATIONS | ON_COUNTERS | ON_GAUGES | {"histogram_quantile", "clamp_max", "abs", "vector"}
KEYWORDS = {"and", "or", "unless", "bool", "on", "ignoring", "group_left", "group_right", "offset"}

_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<grouping>(?:by|without)\s*\([^)]*\))
  | (?P<name>[a-zA-Z_:][\w:]*)
  | (?P<braces>\{(?:"(?:[^"\\]|\\.)*"|[^}"])*\})
  | (?P<range>\[(?:\d+[smhdw]|\$__rate_interval)\])
  | (?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
  | (?P<open>\() | (?P<close>\))
  | (?P<operator>==|!=|<=|>=|[-+*/%^<>,])
    """,
    re.X,
)
_MATCHER = re.compile(r'\s*(\w+)\s*(?:=~|!~|!=|=)\s*"(?:[^"\\]|\\.)*"\s*')


@dataclass
class Use:
    """One selector: a series, the labels asked for, whether over a range, and the functions around it."""

    series: str
    within: tuple[str, ...]
    labels: set[str] = field(default_factory=set)
    is_range: bool = False


def tokens(expression: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(expression):
        match = _TOKEN.match(expression, at)
        assert match is not None, f"not understood: {expression[at:]!r} in {expression!r}"
        at = match.end()
        assert match.lastgroup is not None
        if match.lastgroup != "space":
            yield match.lastgroup, match[0]


def uses(expression: str) -> tuple[list[Use], set[str]]:
    """What it selects, and the labels it groups by."""
    found: list[Use] = []
    grouped: set[str] = set()
    stack: list[str] = []
    pending = ""
    for kind, text in tokens(expression):
        if kind == "name":
            if text in FUNCTIONS:
                pending = text
            elif text not in KEYWORDS:
                found.append(Use(text, tuple(filter(None, stack))))
        elif kind == "grouping":
            grouped |= set(re.findall(r"\w+", text.partition("(")[2]))
        elif kind == "open":
            stack.append(pending)
            pending = ""
        elif kind == "close":
            stack.pop()
        elif kind == "braces":
            matchers = _MATCHER.findall(text[1:-1])
            assert not _MATCHER.sub("", text[1:-1]).strip(","), f"not understood: {text}"
            found[-1].labels |= set(matchers)
        elif kind == "range":
            found[-1].is_range = True
    assert not stack, f"unbalanced: {expression!r}"
    return found, grouped
