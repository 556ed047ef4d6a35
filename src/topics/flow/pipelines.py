"""What pipelines say of themselves: that they run, have ended, or have failed, and why.

A pipeline is a program of its own, and may be gone when somebody asks about it: what it said last is kept for
that. Nothing depends on it. One that was not heard of for a month is forgotten.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from topics.core import ApiError, invalid, is_topic_name, limit_reached
from topics.log import CallbackOp, Creation, Engine, Extension, Fail, Op
from topics.storage import Frame, FrameDraft, Kind

MAX_PIPELINES = 1000
MAX_WHY_BYTES = 4096
UNHEARD_MS = 30 * 24 * 60 * 60 * 1000
FAILED = "failed"
STATES = ("running", "done", "stopped", FAILED)


class Report(msgspec.Struct, array_like=True, gc=False):
    """What a pipeline said last."""

    name: str
    # What it does: `archive`, `route` and so on.
    kind: str
    state: str
    why: str
    # Since when it has been in that state, and when it said so last.
    since_ms: int
    told_ms: int


class _Told(msgspec.Struct, array_like=True, gc=False):
    """What a frame says: a report, or, without one, that the pipeline is to be forgotten."""

    name: str
    report: Report | None


_told = msgspec.msgpack.Decoder(_Told)
_state = msgspec.msgpack.Decoder(list[Report])


class Pipelines(Extension):
    """All of them, by name."""

    name = "pipelines"
    kinds: tuple[int, ...] = (Kind.PIPELINE,)

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._by_name: dict[str, Report] = {}
        # New ones that are on their way to the journal.
        self._coming = 0

    # --- looking ----------------------------------------------------------------------------------------

    def all(self) -> list[Report]:
        """In the order of their names."""
        self._forget_unheard()
        return [report for _, report in sorted(self._by_name.items())]

    def failed(self) -> list[Report]:
        return [report for report in self.all() if report.state == FAILED]

    def _forget_unheard(self) -> None:
        oldest = self._engine.now() - UNHEARD_MS
        for name in [name for name, report in self._by_name.items() if report.told_ms < oldest]:
            del self._by_name[name]

    # --- telling ----------------------------------------------------------------------------------------

    def tell(
        self, name: str, kind: str, state: str, why: str, done: Callable[[Report, bool], None], fail: Fail
    ) -> None:
        """`done` gets the report, and whether the pipeline is new."""
        if not is_topic_name(name):
            raise invalid("a pipeline's name follows the rule for topic names")
        if not is_topic_name(kind):
            raise invalid("kind follows the rule for topic names")
        if state not in STATES:
            raise invalid(f"state must be one of {', '.join(STATES)}")
        if len(why.encode()) > MAX_WHY_BYTES:
            raise invalid(f"why has at most {MAX_WHY_BYTES} bytes")
        self._forget_unheard()
        is_new = name not in self._by_name
        if is_new and len(self._by_name) + self._coming >= MAX_PIPELINES:
            raise limit_reached("max_pipelines", MAX_PIPELINES)
        now, before = self._engine.now(), self._by_name.get(name)
        since = now if before is None or before.state != state else before.since_ms
        report = Report(name, kind, state, why, since, now)

        def apply(_: Op) -> None:
            self._coming -= is_new
            created = name not in self._by_name
            self._by_name[name] = report
            done(report, created)

        def refuse(error: ApiError) -> None:
            self._coming -= is_new
            fail(error)

        self._submit(_Told(name, report), apply, refuse, as_op=Creation if is_new else CallbackOp)
        self._coming += is_new

    def forget(self, name: str, done: Callable[[bool], None], fail: Fail) -> None:
        if name not in self._by_name:
            done(False)
            return

        def apply(_: Op) -> None:
            done(self._by_name.pop(name, None) is not None)

        self._submit(_Told(name, None), apply, fail)

    def _submit(
        self, told: _Told, apply: Callable[[Op], None], fail: Fail, as_op: type[CallbackOp] = CallbackOp
    ) -> None:
        engine = self._engine
        frame = FrameDraft(Kind.PIPELINE, msgspec.msgpack.encode(told), ts=engine.now())
        engine.queue.submit(as_op([frame], None, apply, fail, sync=False))

    # --- as an extension of the log ---------------------------------------------------------------------

    def replay(self, frame: Frame) -> None:
        told = _told.decode(frame.payload)
        if told.report is None:
            self._by_name.pop(told.name, None)
        else:
            self._by_name[told.name] = told.report

    def dump(self) -> Any:
        return self.all() or None

    def load(self, state: Any) -> None:
        self._by_name = {report.name: report for report in _state.decode(msgspec.msgpack.encode(state))}
