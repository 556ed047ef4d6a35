"""What makes no difference on the way of a write into the log, and from there into a segment."""

from __future__ import annotations

from tests.mutation.alike_change import Alike

_OTHERWISE = "another decoder finds the same records"
_NO_LONGER = "what is no longer than that cannot exceed the limit, and whether it does is asked"
_BOTH_WAYS = "both ways lead to the same rows"
_AGAIN = "it is looked at again"
_AHEAD = "more seqs are reserved a little sooner"
_COPIED = "a copy says the same"
_ONE = "one record is one record, whichever way it is written down"

WRITES: tuple[Alike, ...] = (
    Alike(
        "log/write/idempotency.py", "op.count if op.count > 1 else", "op.count if op.count >= 1 else", _ONE
    ),
    Alike(
        "log/write/idempotency.py", "records if records > 1 else 0", "records if records >= 1 else 0", _ONE
    ),
    Alike(
        "log/write/idempotency.py",
        "self.count > all_keys.most_a_topic or",
        "self.count >= all_keys.most_a_topic or",
        "whether there are too many is looked at again",
    ),
    Alike(
        "log/write/idempotency.py",
        "or all_keys.count > all_keys.most:",
        "or all_keys.count >= all_keys.most:",
        "whether there are too many is looked at again",
    ),
    Alike(
        "log/write/idempotency.py",
        "if gone <= 0:",
        "if gone < 0:",
        "a chunk of which nothing is left is not there any more",
    ),
    Alike(
        "log/write/all_keys.py",
        "elif ms > self._aged_at_ms:",
        "elif ms >= self._aged_at_ms:",
        "whoever came later has none that is older",
    ),
    Alike(
        "log/write/key_chunk.py",
        "while at > 0 and",
        "while at >= 0 and",
        "the first digest begins where a digest begins",
    ),
    Alike("log/write/key_chunk.py", "- _WIDTH] > now_ms:", "- _WIDTH] >= now_ms:", _COPIED),
    Alike(
        "log/write/key_chunk.py", "if self.is_closed and self.rows[-_WIDTH] <= head:", "if False:", _COPIED
    ),
    Alike("log/write/key_chunk.py", "self.rows[-_WIDTH] <= head:", "self.rows[-_WIDTH] < head:", _COPIED),
    Alike(
        "log/write/append_form.py",
        "            if found is not None:\n                return found",
        "            if False:\n                return found",
        _OTHERWISE,
    ),
    Alike("log/write/append_form.py", "body is not text", "body is text", _OTHERWISE),
    Alike(
        "log/write/append_form.py",
        "if was_spaced and (found := _cut(body, 11, len(body) - 1)) is not None:",
        "if False:",
        _OTHERWISE,
    ),
    Alike("log/write/append_form.py", "if len(body) <= _SHORT_BYTES", "if len(body) < _SHORT_BYTES", _COPIED),
    Alike(
        "log/write/append_request.py",
        'if b"disable_backpressure" not in body:',
        "if False:",
        "where the name is not, decoding does not find it",
    ),
    Alike(
        "log/write/append_request.py",
        "(body_size > MAX_RECORD_BYTES and",
        "(body_size >= MAX_RECORD_BYTES and",
        _NO_LONGER,
    ),
    Alike("log/write/append_request.py", "len(tag) > SHORT_TAG and", "len(tag) >= SHORT_TAG and", _NO_LONGER),
    Alike(
        "log/write/append_request.py", "len(node) > SHORT_NODE and", "len(node) >= SHORT_NODE and", _NO_LONGER
    ),
    Alike(
        "log/write/append_request.py",
        "len(meta) <= MANY_KEYS_BYTES",
        "len(meta) < MANY_KEYS_BYTES",
        _NO_LONGER,
    ),
    Alike("log/write/batch.py", "if self._around is None:", "if self._around is not None:", _BOTH_WAYS),
    Alike("log/write/batch.py", "self.count < _FEWEST_ADDED:", "self.count <= _FEWEST_ADDED:", _BOTH_WAYS),
    Alike("log/write/append.py", "now if now > topic.last_ts", "now if now >= topic.last_ts", "both are one"),
    Alike(
        "log/write/append.py", "last_seq < topic.reserving >> 2:", "last_seq <= topic.reserving >> 2:", _AGAIN
    ),
    Alike(
        "log/write/append.py",
        "if limit and core.totals.bytes + core.totals.pending_bytes + size > limit:",
        "if limit and core.totals.bytes + core.totals.pending_bytes + size >= limit:",
        _AGAIN,
    ),
    Alike(
        "log/write/reservation.py",
        "if last_seq > topic.reserve_asked:",
        "if last_seq >= topic.reserve_asked:",
        _AHEAD,
    ),
    Alike(
        "log/write/adoption.py",
        "if rows.last_seq > topic.reserved:",
        "if rows.last_seq >= topic.reserved:",
        _AHEAD,
    ),
    Alike(
        "log/write/refusals.py",
        "                if not ops:\n                    return []",
        "                if False:\n                    return []",
        "nothing is written then, and nothing is left of it",
    ),
    Alike("log/write/commit_loop.py", "if not self._held_until:", "if False:", "that time is over"),
    Alike("log/write/batch.py", "if count == 1:", "if False:", "its only line feed is at its end"),
    Alike("log/write/append_frame.py", "len(payload) > _COPIED", "len(payload) >= _COPIED", _COPIED),
    Alike(
        "log/write/append_frame.py",
        "if batch.meta_lens is None and batch.tags is None and batch.nodes is None and hops is None:",
        "if False:",
        "what has no parts beside its rows consists of them",
    ),
    Alike(
        "log/write/commit_queue.py",
        "if len(ops) > self.counters",
        "if len(ops) >= self.counters",
        "it is that",
    ),
    Alike(
        "log/write/arrow_batch.py",
        "self.is_quick and self._records is not None:",
        "self.is_quick and self._records is None:",
        _BOTH_WAYS,
    ),
    Alike(
        "log/write/arrow_batch.py",
        "if records is not None and metas is None:",
        "if False:",
        "none of them is too large",
    ),
    Alike("log/write/arrow_batch.py", "if column.type == pa.string():", "if False:", _COPIED),
    Alike("log/write/arrow_batch.py", "if _cut(cells) is not None:", "if False:", _OTHERWISE),
    Alike(
        "log/write/arrow_batch.py",
        "if not has_space and _are_elements(_one_by_one, text, np.diff(offsets)):",
        "if False:",
        _OTHERWISE,
    ),
    Alike("log/write/arrow_batch.py", "if len(shorter) == len(text):", "if False:", _COPIED),
    Alike("log/write/large_append.py", "if len(texts) == 1:", "if False:", _COPIED),
    Alike(
        "log/write/large_json.py",
        "max(len(self._around) - _LONGEST_NAME, 0)",
        "min(len(self._around) - _LONGEST_NAME, 0)",
        "it looks further back, and finds the same name",
    ),
    Alike(
        "log/seal/unsealed.py",
        "if run.start_position < self._newest:",
        "if run.start_position <= self._newest:",
        "a run that is listed as displaced without being so is looked at twice and taken once",
    ),
    Alike(
        "log/write/ahead_batch.py",
        "if self._for is None:",
        "if False:",
        "where nothing was rendered there is nothing to be put right",
    ),
    Alike(
        "log/topic.py",
        "if now > ts:",
        "if now >= ts:",
        "both are the same time",
    ),
)
