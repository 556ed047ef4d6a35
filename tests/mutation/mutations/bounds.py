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
)
