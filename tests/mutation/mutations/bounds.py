"""Nobody stops the server for the others: work follows the bytes, and memory has a bound."""

from tests.mutation.runner import Mutation

MUTATIONS = (
    Mutation(
        "look-a-key-up-at-each-occurrence",
        "A router that copies exactly once looks at a record of its destination once, and not into its data.",
        "flow/routers/exactly_once.py",
        "            at = block.find(text, end if at >= meta_at else meta_at)\n",
        "            at = block.find(text, at + 1)\n",
        ("tests/flow/routers/test_exactly_once.py",),
    ),
    Mutation(
        "keep-all-keys-of-a-router",
        "Keys that clients write for records still to come are bounded, and those that come first are kept.",
        "flow/routers/exactly_once.py",
        "    if len(useful) >= MAX_KEYS:\n        useful = {seq: useful[seq]",
        "    if False:\n        useful = {seq: useful[seq]",
        ("tests/flow/routers/test_exactly_once.py",),
    ),
    Mutation(
        "unpack-before-counting",
        "An Arrow body that unfolds to more than a body may have is refused before anything is unpacked.",
        "log/write/arrow_messages.py",
        "            if size > max_bytes:\n                raise unfolds_to_too_much(max_bytes)\n",
        "",
        ("tests/log/write/test_arrow_messages.py", "tests/contract/test_heavy_requests.py"),
    ),
    Mutation(
        "believe-any-length",
        "A compressed buffer takes no more memory than was counted for it, whatever it says.",
        "log/write/arrow_messages.py",
        "np.where(told == -1, packed - _PREFIX_BYTES, told)",
        "packed - _PREFIX_BYTES",
        ("tests/log/write/test_arrow_messages.py",),
    ),
    Mutation(
        "count-a-shared-text-once",
        "A text that many rows refer to counts for each of them, before any of them gets its own.",
        "log/write/arrow_batch.py",
        "                size += sum(_referred_to(batch, name) for name in _TEXTS)\n",
        "",
        ("tests/log/write/test_arrow_messages.py", "tests/contract/test_heavy_requests.py"),
    ),
    Mutation(
        "show-a-whole-ledger",
        "However many ranges a ledger has, an answer has a page of them.",
        "http/routes/ledger.py",
        "max(after, topic.seq_base - 1), page_size(exchange))",
        "max(after, topic.seq_base - 1), topic.head + 1)",
        ("tests/contract/test_ledger.py",),
    ),
    Mutation(
        "let-a-ledger-grow",
        "What a topic remembers of missing seqs is bounded.",
        "log/remove/ledger.py",
        "        if len(self.kinds) > MAX_RANGES:\n",
        "        if False:\n",
        ("tests/log/remove/test_ledger.py",),
    ),
    Mutation(
        "call-a-loss-a-deletion",
        "However little detail is left of an old loss, it is never told as a deletion.",
        "log/remove/ledger.py",
        "        kinds = bytes(map(max, ",
        "        kinds = bytes(map(min, ",
        ("tests/log/remove/test_ledger.py",),
    ),
    Mutation(
        "count-what-left-meanwhile-as-live",
        "What a ledger says is true of one moment, also while records leave the topic.",
        "log/read/audit.py",
        "            while _gone(topic) == gone:\n",
        "            while True:\n",
        ("tests/log/read/test_audit.py",),
    ),
)
