"""What the command must not do: overlook loss, remove without being asked to, let data drive a terminal."""

from __future__ import annotations

from tests.mutation.runner import Mutation

MUTATIONS = (
    Mutation(
        "print-no-loss",
        "The command prints what was lost in its place among the records.",
        "cli/remote/feed.py",
        "            yield Lost(self.topic, page.epoch, told), gap.gap_to, page.epoch\n",
        "            yield None, gap.gap_to, page.epoch\n",
        ("tests/cli/remote/test_read.py",),
    ),
    Mutation(
        "read-on-into-another-life",
        "A position of the command line is never read into another life of its topic.",
        "cli/remote/feed.py",
        '            query["epoch"] = epoch\n',
        "            pass\n",
        ("tests/cli/remote/test_read.py",),
    ),
    Mutation(
        "end-well-after-a-loss",
        "With `--fail-on-loss` a loss ends the command, with exit code 3.",
        "cli/remote/read.py",
        "        elif self._arguments.fail_on_loss:\n            raise _LossMet\n",
        "",
        ("tests/cli/remote/test_read.py",),
    ),
    Mutation(
        "write-behind-a-mistake",
        "Nothing behind a line that is a mistake is written.",
        "cli/remote/write.py",
        "        if mistake is not None:\n            raise mistake\n",
        "",
        ("tests/cli/remote/test_write.py",),
    ),
    Mutation(
        "remove-unasked",
        "Without a terminal nothing is dropped or deleted, unless `--yes` says so.",
        "cli/remote/removing.py",
        "    if not (arguments.yes or arguments.dry_run or has_terminal()):\n"
        "        raise UserMistake(UNASKED)\n",
        "    arguments.yes = True\n",
        ("tests/cli/remote/test_topics.py",),
    ),
    Mutation(
        "let-data-drive-the-terminal",
        "No control character of data reaches a terminal.",
        "cli/work.py",
        '    return _CONTROL.sub(lambda found: found.group().encode("unicode_escape").decode(), text)\n',
        "    return text\n",
        ("tests/cli/remote/test_terminal.py",),
    ),
    Mutation(
        "print-and-forget",
        "After Ctrl-C the command that goes on begins behind the last record that was printed.",
        "cli/remote/read.py",
        "        self._show(item)\n        feed.done(entry)\n",
        "        self._show(item)\n",
        ("tests/cli/remote/test_read.py",),
    ),
)
