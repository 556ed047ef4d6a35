"""Changes of queues, routers and live delivery that make no difference."""

from __future__ import annotations

from tests.mutation.alike_change import Alike

_NO_MORE = "with none left to be found, later runs add nothing"
_TIDIED_UP = "times that count no more are thrown away a little earlier"
_BRACE = "a meta begins with a brace, which no key does"
_SENT = "a record that was forwarded is not asked for again"
_SOONER = "keys that are of no more use are thrown away sooner or later"
_NO_LENGTH = "a moment has no length"
_CLIPPED = "what lies outside of the window is cut off"

FLOW: tuple[Alike, ...] = (
    Alike(
        "flow/queues/claims.py", "if len(jobs) < len(picked):", "if len(jobs) <= len(picked):", "none is left"
    ),
    Alike("flow/queues/jobs.py", "if len(found) >= limit:", "if False:", _NO_MORE),
    Alike("flow/queues/jobs.py", "if len(found) >= limit:", "if len(found) > limit:", _NO_MORE),
    Alike(
        "flow/queues/leases.py",
        "if len(self._deadlines) > 2",
        "if len(self._deadlines) >= 2",
        _TIDIED_UP,
    ),
    Alike("flow/queues/leases.py", "if len(self._delays) > 2", "if len(self._delays) >= 2", _TIDIED_UP),
    Alike("flow/queues/leases.py", "if not gone:", "if False:", "nothing is forgotten"),
    Alike(
        "flow/queues/acks.py",
        "if count < len(seqs) else ()",
        "if count <= len(seqs) else ()",
        "of those that were all deleted, none is lost",
    ),
    Alike(
        "flow/routers/exactly_once.py",
        "max(router.keys_scanned + 1, dest.floor)",
        "min(router.keys_scanned + 1, dest.floor)",
        "what is looked through again has the same keys, and those of gone records count for nothing",
    ),
    Alike("flow/routers/exactly_once.py", "while at >= 0:", "while at > 0:", "no row begins with its meta"),
    Alike("flow/routers/exactly_once.py", "if at >= meta_at:\n", "if at > meta_at:\n", _BRACE),
    Alike("flow/routers/exactly_once.py", "end if at >= meta_at else", "end if at > meta_at else", _BRACE),
    Alike("flow/routers/exactly_once.py", "int(number) > router.sent:", "int(number) >= router.sent:", _SENT),
    Alike("flow/routers/exactly_once.py", "if seq > router.sent}", "if seq >= router.sent}", _SENT),
    Alike("flow/routers/exactly_once.py", "if count >= _FEW_KEYS and", "if count > _FEW_KEYS and", _SOONER),
    Alike("flow/routers/exactly_once.py", "(count - 1) == 0:", "(count - 1) != 0:", _SOONER),
    Alike("flow/routers/source_window.py", "if first < source.floor:", "if first <= source.floor:", _CLIPPED),
    Alike("flow/routers/source_window.py", "if account.firsts[at] > last:", "if False:", _CLIPPED),
    Alike("flow/routers/source_window.py", "if hole.last < first:", "if False:", _CLIPPED),
    Alike(
        "flow/routers/source_window.py",
        "if max_records <= 0 or",
        "if max_records < 0 or",
        "of the next run none fits, so that the window ends in front of it",
    ),
    Alike(
        "flow/routers/lineage.py",
        "or stretch.first > self.firsts[-1]:",
        "or stretch.first >= self.firsts[-1]:",
        "records that are noted twice are the same",
    ),
    Alike(
        "flow/routers/recovery.py",
        "if end > oldest}",
        "if end >= oldest}",
        "what no step refers to any more is followed in vain",
    ),
    Alike(
        "flow/routers/registry.py",
        "if router.sent < source.head and is_open:",
        "if router.sent <= source.head and is_open:",
        "a window of nothing moves no router",
    ),
    Alike(
        "flow/routers/step.py",
        "or engine.settings.max_total_bytes > 0",
        "or engine.settings.max_total_bytes >= 0",
        "where there is no bound, all of it fits",
    ),
    Alike(
        "flow/routers/step.py",
        "if whole and stamp is None and shape in self._shared:",
        "if False:",
        "copies that are not shared are the same",
    ),
    Alike(
        "flow/routers/step.py",
        "if last_seq > dest.reserved:",
        "if last_seq >= dest.reserved:",
        "seqs are reserved one seq earlier",
    ),
    Alike("flow/routers/step.py", "if not router.keys_seen:", "if False:", "none of them is known"),
    Alike(
        "flow/routers/step.py",
        "if not router.options.exactly_once or not len(picked):",
        "if False:",
        "copies without a stamp are as large as what they are made from",
    ),
    Alike(
        "flow/watch/fanout.py",
        "if self.topic.head - subscription.seq <= subscription.options.limit:",
        "if self.topic.head - subscription.seq < subscription.options.limit:",
        "a page that is read for one alone tells the same",
    ),
    Alike(
        "flow/watch/fanout.py",
        "feed.deferred_since >= LONGEST_DEFER_S:",
        "feed.deferred_since > LONGEST_DEFER_S:",
        "it is looked at again and again, and a moment has no length",
    ),
    Alike(
        "flow/stages/stages.py",
        "and request.batch < oldest:",
        "and request.batch <= oldest:",
        "the oldest is known",
    ),
    Alike(
        "flow/stages/spool.py",
        "if self._gathered >= _PIECE_BYTES:",
        "if self._gathered > _PIECE_BYTES:",
        "the same bytes are written one piece later",
    ),
    Alike(
        "flow/pacing.py",
        "if priority <= self._lately or",
        "if priority < self._lately or",
        "what is protected already is noted again",
    ),
    Alike(
        "flow/pacing.py",
        "now - self._pumped_at < CROWDED_S else",
        "now - self._pumped_at <= CROWDED_S else",
        "where it has taken exactly so long, one more turn is made",
    ),
    Alike(
        "flow/routers/background.py",
        "perf_counter() - started > TURN_S",
        "perf_counter() - started >= TURN_S",
        _NO_LENGTH,
    ),
    Alike(
        "flow/routers/copies.py",
        'if len(meta) <= _META_COUNT_BYTES and _STAMP_KEY_BYTES not in meta and b"\\\\" not in meta:',
        "if False:",
        "a meta that is looked into gets its mark in the same place",
    ),
    Alike(
        "flow/routers/copies.py",
        "if len(meta) <= _META_COUNT_BYTES and",
        "if len(meta) < _META_COUNT_BYTES and",
        "a meta that is looked into gets its mark in the same place",
    ),
    Alike(
        "flow/routers/step.py",
        "int(self._sizes.sum()) > limit:",
        "int(self._sizes.sum()) >= limit:",
        "what is too old is gone for everybody already",
    ),
    Alike(
        "flow/routers/step.py",
        "if len(engine.queue.waiting) < MAX_RESERVATIONS:",
        "if len(engine.queue.waiting) <= MAX_RESERVATIONS:",
        "seqs are reserved a little earlier",
    ),
    Alike(
        "flow/queues/claims.py",
        "if len(claims) == 1:",
        "if False:",
        "one claim gets all of them in turns",
    ),
    Alike(
        "flow/queues/jobs.py",
        "if end - begin > _SMALL_BYTES:",
        "if False:",
        "jobs that are cut out one by one are the same",
    ),
    Alike(
        "flow/queues/jobs.py",
        "if end - begin > _SMALL_BYTES:",
        "if end - begin >= _SMALL_BYTES:",
        "jobs that are cut out one by one are the same",
    ),
    Alike(
        "flow/queues/losses.py",
        "return seq < topic.floor and",
        "return seq <= topic.floor and",
        "what the ledger tells of ends in front of the floor",
    ),
    Alike(
        "flow/queues/losses.py",
        "if hole.last > self._offered]",
        "if hole.last >= self._offered]",
        "of what was offered up to there nothing is told again",
    ),
    Alike(
        "flow/queues/losses.py",
        "in ranges if last > self._told)",
        "in ranges if last >= self._told)",
        "of what was told up to there nothing is told again",
    ),
    Alike(
        "flow/upkeep.py",
        "if now >= self._not_before:",
        "if now > self._not_before:",
        _NO_LENGTH,
    ),
    Alike(
        "flow/upkeep.py",
        "if (now >= self._not_before or",
        "if (now > self._not_before or",
        _NO_LENGTH,
    ),
    Alike(
        "flow/routers/arrival.py",
        "if not share.pieces:",
        "if False:",
        "without copies only age is asked, which has its effect before anybody looks",
    ),
    Alike(
        "flow/routers/step.py",
        "or dest.assigned > MAX_SEQ >> 1",
        "or dest.assigned >= MAX_SEQ >> 1",
        "with half of all seqs left, all of it fits",
    ),
)
