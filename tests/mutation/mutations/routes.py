"""What readers by GET and by event streams are promised."""

from __future__ import annotations

from tests.mutation.runner import Mutation

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
)
