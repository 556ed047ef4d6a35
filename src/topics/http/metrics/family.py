"""One metric with all its series, and how it is written down."""

import math
from collections.abc import Iterable, Iterator, Mapping

from topics.core import Histogram

Sample = tuple[str, float]


class Family:
    """Name, kind, help, and the samples there are right now: what follows the name, and the number."""

    __slots__ = ("help", "kind", "name", "samples")

    def __init__(self, name: str, kind: str, text: str, samples: Iterable[Sample]) -> None:
        self.name = name
        self.kind = kind
        self.help = text
        self.samples = samples

    def lines(self) -> Iterator[str]:
        yield f"# HELP {self.name} {self.help}"
        yield f"# TYPE {self.name} {self.kind}"
        for suffix, value in self.samples:
            yield f"{self.name}{suffix} {_number(value)}"


def _number(value: float) -> str:
    if value == math.inf:
        return "+Inf"
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def gauge(name: str, text: str, value: float) -> Family:
    return Family(name, "gauge", text, [("", value)])


def counter(name: str, text: str, value: float) -> Family:
    return Family(name, "counter", text, [("", value)])


def labelled(kind: str, name: str, text: str, label: str, values: Mapping[str, float]) -> Family:
    """One series for each value of one label."""
    return Family(name, kind, text, [(labels(**{label: value}), n) for value, n in values.items()])


def histogram(name: str, text: str, measured: Histogram) -> Family:
    return Family(name, "histogram", text, histogram_samples(measured))


def labels(**values: str) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in values.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def histogram_samples(measured: Histogram, **values: str) -> Iterator[Sample]:
    for bound, count in measured.cumulative():
        yield "_bucket" + labels(**values, le=bound), count
    shared = labels(**values) if values else ""
    yield "_sum" + shared, measured.total
    yield "_count" + shared, measured.count
