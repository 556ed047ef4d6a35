"""Records that arrive one by one, from many writers in one turn of the loop, are written together.

A write of one small plain record waits until the journal is about to be written anyway. By then its topic
may have a dozen of them: they get their seqs, their frame and their place in memory as one batch, and each
writer its own answer.
"""

from functools import partial
from typing import Generic, Protocol, TypeVar

from topics.log.core import Core
from topics.log.topic import Topic
from topics.log.write.append import AppendOp, append_to
from topics.log.write.append_form import Lone
from topics.log.write.append_frame import plain_batch
from topics.log.write.append_request import AppendRequest, column_request
from topics.log.write.idempotency import KeyedWrite, MaybeRetry
from topics.values import ApiError

# Larger ones gain nothing from company.
SMALL_BODY_BYTES = 4096
# With no more writers than this, waiting for others gains nothing.
_FEW = 3
# Bounds the frame.
_MOST_TOGETHER = 1024

Writer = TypeVar("Writer")


class Answering(Protocol[Writer]):
    """How writers are told what became of their records."""

    def answer(self, writers: list[Writer], op: AppendOp) -> None:
        """Records of these writers were committed as one batch, in this order."""

    def fail(self, writers: list[Writer], error: ApiError) -> None: ...

    def append_alone(self, writer: Writer, request: AppendRequest) -> None:
        """Append the record of one writer as if there had been no others."""


class LoneAppends(Generic[Writer]):
    def __init__(self, core: Core, answering: Answering[Writer]) -> None:
        self._core = core
        self._answering = answering
        self._gathered: dict[Topic, tuple[list[Writer], list[Lone]]] = {}
        # Those with an idempotency key go together, too: then each record of a batch has one, or none has.
        self._keyed: dict[Topic, tuple[list[Writer], list[Lone], list[bytes]]] = {}
        # How many came together the last time.
        self._company = 0

    def add(self, writer: Writer, topic: Topic, line: Lone) -> None:
        gathered = self._gathered
        if not gathered:
            self._begin()
        together = gathered.get(topic)
        if together is None:
            together = gathered[topic] = ([], [])
        together[0].append(writer)
        together[1].append(line)

    def add_keyed(self, writer: Writer, topic: Topic, line: Lone, key: bytes) -> None:
        keyed = self._keyed
        if not keyed:
            self._begin()
        together = keyed.get(topic)
        if together is None:
            together = keyed[topic] = ([], [], [])
        together[0].append(writer)
        together[1].append(line)
        together[2].append(key)

    def _begin(self) -> None:
        if not self._gathered and not self._keyed:
            self._core.queue.before_flush(self._submit, expects_more=self._company > _FEW)

    def _submit(self) -> None:
        gathered, self._gathered = self._gathered, {}
        keyed, self._keyed = self._keyed, {}
        self._company = sum([len(lines) for _, lines in gathered.values()])
        for topic, (writers, lines) in gathered.items():
            for start in range(0, len(lines), _MOST_TOGETHER):
                stop = start + _MOST_TOGETHER
                self._append(topic, writers[start:stop], lines[start:stop])
        if keyed:
            self._company += sum([len(lines) for _, lines, _ in keyed.values()])
            for topic, (writers, lines, keys) in keyed.items():
                for start in range(0, len(lines), _MOST_TOGETHER):
                    stop = start + _MOST_TOGETHER
                    self._append_keyed(topic, writers[start:stop], lines[start:stop], keys[start:stop])

    def _append(self, topic: Topic, writers: list[Writer], lines: list[Lone]) -> None:
        answering = self._answering
        done, fail = partial(answering.answer, writers), partial(answering.fail, writers)
        try:
            append_to(self._core, topic, plain_batch(lines), done, fail)
        except ApiError:
            # Perhaps only the last does not fit: each hears for itself.
            for writer, line in zip(writers, lines, strict=True):
                self._append_alone(writer, line, None)

    def _append_keyed(
        self, topic: Topic, writers: list[Writer], lines: list[Lone], keys: list[bytes]
    ) -> None:
        answering, core = self._answering, self._core
        taken: KeyedWrite | None = None
        try:
            if topic.config.idempotency_window_ms:
                taken = core.keys.of(topic).take_each(keys)
            done, fail = partial(answering.answer, writers), partial(answering.fail, writers)
            append_to(core, topic, plain_batch(lines), done, fail, taken)
        except (ApiError, MaybeRetry):
            if taken is not None:
                taken.withdraw()
            for writer, line, key in zip(writers, lines, keys, strict=True):
                self._append_alone(writer, line, key)

    def _append_alone(self, writer: Writer, line: Lone, key: bytes | None) -> None:
        request = column_request(plain_batch([line]), create=None, idempotency_key=key)
        try:
            self._answering.append_alone(writer, request)
        except ApiError as error:
            self._answering.fail([writer], error)
