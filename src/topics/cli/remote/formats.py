"""Formats of records and losses: for people, JSON, data alone, or a template."""

import json
import string
import sys
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from topics.cli.errors import clean, clean_json
from topics.cli.output import Output, new_console, time_of
from topics.client.records import AnyLoss, Lost, Record, Restarted
from topics.core import UserMistake, did_you_mean, nearest

_FIELDS = ("topic", "epoch", "seq", "ts", "time", "data", "tag", "node", "meta")
_WORDS = ("human", "json", "data")

_encode_line = msgspec.json.Encoder().encode

# An item of `items(raw=True)`: data and meta of a record are the JSON that was written.
RawRecord = Record[msgspec.Raw]
Item = RawRecord | Lost | Restarted
Printer = Callable[[Item], None]


def printer(output: Output, wanted: str | None, *, many: bool) -> Printer:
    """Return the function that prints items. With `many` topics, lines for people name the topic."""
    name = ("json" if output.for_machines else "human") if wanted is None else wanted
    if name == "json":
        return lambda item: output.line(_encode(item))
    if name == "human":
        return _Human(output, many=many)
    if name == "data":
        return _with_losses_aside(
            lambda record: bytes(record.data).decode("utf-8", "replace"), on_terminal=clean_json
        )
    if "{" not in name:
        question = did_you_mean(name, _WORDS)
        raise UserMistake(
            f"there is no format {name!r}{question}; a template has braces, as in '{{seq}} {{data}}'"
        )
    return _with_losses_aside(_Template(name))


class _Line(msgspec.Struct, omit_defaults=True):
    """A record as a line of JSON has it."""

    topic: str
    epoch: int
    seq: int
    ts: int
    data: msgspec.Raw
    tag: str | None = None
    node: str | None = None
    meta: Any = None


def _encode(item: Item) -> bytes:
    if isinstance(item, Record):
        line = _Line(item.topic, item.epoch, item.seq, item.ts, item.data, item.tag, item.node, item.meta)
        return _encode_line(line)
    row: dict[str, Any] = {"topic": item.topic, "epoch": item.epoch}
    if isinstance(item, Lost):
        row["lost"] = {"gap_from": item.gap_from, "gap_to": item.gap_to, "reason": item.reason}
    else:
        row["restarted"] = {"previous_epoch": item.previous_epoch}
    return msgspec.json.encode(row)


def loss_text(loss: AnyLoss) -> str:
    """A loss as a line for people."""
    if isinstance(loss, Lost):
        return f"{loss.topic}: lost {loss.gap_from}-{loss.gap_to} ({loss.reason})"
    known = "" if loss.previous_epoch is None else f", epoch {loss.previous_epoch} before"
    return f"{loss.topic}: lost, it was made anew (epoch {loss.epoch}{known})"


class _Human:
    def __init__(self, output: Output, *, many: bool) -> None:
        self._output = output
        self._many = many

    def __call__(self, item: Item) -> None:
        if not isinstance(item, Record):
            self._output.say(loss_text(item), "bold red")
            return
        from rich.text import Text

        line = Text().append(time_of(item.ts), "dim")
        if self._many:
            line.append(f"  {clean(item.topic)}", "cyan")
        line.append(f"  {item.seq}", "bold")
        if item.tag is not None:
            line.append(f"  {clean(item.tag)}", "magenta")
        if item.node is not None:
            line.append(f"  from {clean(item.node)}", "blue")
        line.append(f"  {clean(bytes(item.data).decode('utf-8', 'replace'))}")
        if item.meta is not None:
            line.append(f"  {clean(bytes(cast(msgspec.Raw, item.meta)).decode('utf-8', 'replace'))}", "dim")
        line.no_wrap = True
        self._output.console.print(line, soft_wrap=True)
        sys.stdout.flush()


def _with_losses_aside(
    render: Callable[[RawRecord], str], on_terminal: Callable[[str], str] = clean
) -> Printer:
    """Print losses on standard error, because the reader of the output expects only data."""
    cleaned = on_terminal if sys.stdout.isatty() else _encodable

    def show(item: Item) -> None:
        if isinstance(item, Record):
            print(cleaned(render(item)), flush=True)
        else:
            _print_loss(item)

    return show


def _encodable(text: str) -> str:
    """Escape lone surrogates, which JSON can write and UTF-8 cannot."""
    return text.encode("utf-8", "backslashreplace").decode()


def _print_loss(loss: AnyLoss) -> None:
    text = clean(loss_text(loss))
    if sys.stderr.isatty():
        from rich.text import Text

        new_console(stderr=True).print(Text(text, style="bold red"), soft_wrap=True)
    else:
        print(text, file=sys.stderr, flush=True)


class _Template(string.Formatter):
    """A template such as `{seq} {data[sku]}`. A missing value is empty."""

    def __init__(self, text: str) -> None:
        self._text = text
        try:
            names = [name for _, name, _, _ in self.parse(text) if name is not None]
        except ValueError as error:
            raise UserMistake(f"the format cannot be read: {error}") from None
        for name in names:
            first = name.replace("[", ".").partition(".")[0]
            if first not in _FIELDS:
                meant = nearest(first, _FIELDS)
                question = f"it has {', '.join(_FIELDS)}" if meant is None else f"did you mean {meant}?"
                raise UserMistake(f'a record has no "{first}": {question}')

    def __call__(self, record: RawRecord) -> str:
        values: dict[str, Any] = {
            "topic": record.topic,
            "epoch": record.epoch,
            "seq": record.seq,
            "ts": record.ts,
            "time": time_of(record.ts),
            "data": record.data,
            "tag": record.tag,
            "node": record.node,
            "meta": record.meta,
        }
        try:
            return self.vformat(self._text, (), values)
        except (ValueError, TypeError) as error:
            raise UserMistake(f"the format does not fit seq {record.seq}: {error}") from None

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Any) -> tuple[Any, str]:
        first, *rest = field_name.replace("]", "").replace("[", ".").split(".")
        value = kwargs[first]
        if isinstance(value, msgspec.Raw):
            # Floats stay as they were written, because decoding would round them.
            value = json.loads(bytes(value), parse_float=str) if rest else value
        for part in rest:
            value = _inside(value, part)
        return value, first

    def format_field(self, value: Any, format_spec: str) -> str:
        if value is None:
            return format("", format_spec) if format_spec else ""
        if isinstance(value, msgspec.Raw):
            value = bytes(value).decode("utf-8", "replace")
            value = json.loads(value) if value.startswith('"') else value
        elif not isinstance(value, (str, int, float)) or isinstance(value, bool):
            value = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return format(value, format_spec)


def _inside(value: Any, part: str) -> Any:
    if isinstance(value, dict):
        return value.get(part)
    if isinstance(value, list) and part.isdigit() and int(part) < len(value):
        return value[int(part)]
    return None
