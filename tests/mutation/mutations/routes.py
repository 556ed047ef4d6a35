"""What readers by GET and by event streams are promised."""

from __future__ import annotations

from tests.mutation.runner import Mutation

_TAIL = "tests/contract/test_tail.py"
_REDRIVE = "tests/contract/test_redrive.py"
_CALLERS = "tests/contract/test_callers.py"
_RECORDS = "tests/contract/test_records.py"

MUTATIONS = (
    Mutation(
        "choose-in-silence",
        "A reader that chooses by tag or time is told of every loss all the same.",
        "log/read/page.py",
        "        page = Page(position, gap, topic.head, topic.floor)\n",
        "        page = Page(position, gap if choice is None else None, topic.head, topic.floor)\n",
        (_RECORDS,),
    ),
    Mutation(
        "blame-a-delete",
        "A single record that is gone says whether it was deleted or lost, and to what.",
        "log/read/audit.py",
        "    kind_below = topic.ledger.kind_of(seq)\n",
        "    kind_below = None\n",
        (_RECORDS,),
    ),
    Mutation(
        "begin-late-topics-at-the-head",
        "A tail reads a topic that came while its client was away from the first record.",
        "http/routes/streams/tail.py",
        "            if topic.name not in seqs:\n                return 0, topic.id\n",
        "            if topic.name not in seqs:\n                return topic.head, topic.id\n",
        (_TAIL,),
    ),
    Mutation(
        "forget-the-id",
        "The id of the last frame resumes a tail, whatever its URL says.",
        "http/routes/streams/tail.py",
        "        if self._known is not None:\n",
        "        if False:\n",
        (_TAIL,),
    ),
    Mutation(
        "forget-who-stood-in-a-lost-topic",
        "A tail tells a client that stood in a topic that is gone when another of that name has come.",
        "http/routes/streams/tail.py",
        "            self._places.put(name, seq, epoch, first_life=False)\n",
        "            pass\n",
        (_TAIL,),
    ),
    Mutation(
        "redrive-and-keep",
        "A dead letter that goes back to its queue is in exactly one of the two places, whatever happens.",
        "flow/queues/redrive.py",
        "            payload = msgspec.msgpack.encode(selector)\n",
        "            payload = msgspec.msgpack.encode(Selector(1, seqs=[]))\n",
        ("tests/crash/test_dead_letters.py", _REDRIVE),
    ),
    Mutation(
        "forget-the-first-queue-of-a-letter",
        "A job that died in one queue after another goes back queue by queue, as far as its meta has room.",
        "flow/queues/dead_letters.py",
        "        fields |= told\n",
        "        pass\n",
        (_REDRIVE, "tests/flow/queues/test_redrive.py"),
    ),
    Mutation(
        "use-a-ticket-twice",
        "A ticket opens one stream, once.",
        "http/door/tickets.py",
        "        del self._open[digest]\n        return None if found.key",
        "        return None if found.key",
        ("tests/contract/test_browser_keys.py", "tests/http/door/test_tickets.py"),
    ),
    Mutation(
        "answer-to-any-name",
        "A server without keys answers to no name but its own and those that were allowed.",
        "http/door/callers.py",
        "        if not self._any_host:\n",
        "        if False:\n",
        (_CALLERS,),
    ),
    Mutation(
        "let-every-page-in",
        "A page from elsewhere changes nothing, and opens no stream and no socket, unless it was let in.",
        "http/door/callers.py",
        "            if is_stream or request.method_bytes not in _READING:\n",
        "            if False:\n",
        (_CALLERS,),
    ),
)
