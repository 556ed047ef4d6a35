"""The SDK: no loss overlooked, nothing read twice or not at all, no write repeated in doubt."""

from tests.mutation.runner import Mutation

MUTATIONS = (
    Mutation(
        "read-on-behind-a-loss",
        "A reader of the SDK is told of a loss before anything behind it, and its cursor stays in front.",
        "client/operations/reading.py",
        "        else:\n            raise loss_error(loss)\n        yield from self.pass_loss(loss)\n",
        "        yield from self.pass_loss(loss)\n",
        ("tests/sdk/test_reading.py",),
    ),
    Mutation(
        "done-when-handed-out",
        "A record is done when the next one is asked for: after a break, the one under way comes again.",
        "client/topic.py",
        "                        yield record\n                        if reading.done(record):\n"
        "                            run(cursor._flush())\n",
        "                        if reading.done(record):\n                            run(cursor._flush())\n"
        "                        yield record\n",
        ("tests/sdk/test_cursors.py",),
    ),
    Mutation(
        "begin-anew-with-a-damaged-cursor",
        "A damaged cursor is an error, never a new beginning.",
        "client/cursors/kept.py",
        '            raise ValueError(f"{self.path} is damaged, or is no cursor: {error}") from None\n',
        "            return None\n",
        ("tests/sdk/test_cursors.py",),
    ),
    Mutation(
        "accept-for-this-process-only",
        "A loss that was accepted is kept with the cursor.",
        "client/cursors/kept.py",
        '            file.writelines(_to_line(accepted) + b"\\n" for accepted in self._accepted)\n',
        "",
        ("tests/sdk/test_reading.py",),
    ),
    Mutation(
        "repeat-with-a-key-that-is-forgotten",
        "A write is repeated only while the server is sure to know its key; otherwise it is uncertain.",
        "client/wire/session.py",
        "        return bool((time.monotonic() - sent_at) * 1000 >= kept_ms)\n",
        "        return False\n",
        ("tests/sdk/test_retries.py",),
    ),
    Mutation(
        "another-key-than-the-callers",
        "A write that is repeated under its key is in the log once.",
        "client/operations/writing.py",
        '        if key:\n            return self.body((row,), key), ""\n',
        "",
        ("tests/sdk/test_writing.py",),
    ),
    Mutation(
        "begin-a-list-for-each-batch",
        "Threads may share a writer: what each of them gives it is written once, and counted.",
        "client/operations/writing.py",
        "        del self._rows[: len(rows)]\n",
        "        self._rows = self._rows[len(rows) :]\n",
        ("tests/sdk/test_shared_writer.py",),
    ),
    Mutation(
        "hand-out-jobs-before-the-news",
        "Lost jobs are told before a job is handed out.",
        "client/operations/queueing.py",
        "                    if on_loss is None:\n                        raise loss_error(loss)\n",
        "                    if on_loss is None:\n                        continue\n",
        ("tests/sdk/test_queues.py",),
    ),
    Mutation(
        "let-others-work-on-behind-a-loss",
        "A worker that comes to lost jobs hands out none behind them, to none of its threads or tasks.",
        "client/aio_jobs.py",
        "        async with self._turn:\n            self._waiting -= 1\n",
        "        if True:\n            self._waiting -= 1\n",
        ("tests/sdk/test_queues.py",),
    ),
    Mutation(
        "take-records-behind-the-end",
        "What is given to a writer whose block has ended is refused.",
        "client/operations/writing.py",
        "            self._has_ended, self._due = True, 0.0\n",
        "            pass\n",
        ("tests/sdk/test_writing.py",),
    ),
    Mutation(
        "send-what-is-no-number",
        "What is no JSON is not sent.",
        "client/encoding.py",
        '        if not isfinite(value):\n            raise ValueError(f"{value} is no JSON")\n',
        "        pass\n",
        ("tests/sdk/test_writing.py",),
    ),
    Mutation(
        "repeat-what-went-out-with-others-without-its-key",
        "A write that is repeated under its key is in the log once.",
        "client/aio_topic.py",
        "        request = writing.request(body, header_key)\n",
        "        request = writing.request(body)\n",
        ("tests/client/test_aio_topic.py",),
    ),
    Mutation(
        "give-an-answer-to-the-next-in-turn",
        "Writes that go out together get their own answers, also where one of them was given up.",
        "client/wire/async_connection.py",
        "                waiter = waiters.popleft()\n                if not waiter.done():\n",
        "                waiter = waiters.popleft()\n                while waiter.done() and waiters:\n"
        "                    waiter = waiters.popleft()\n                if not waiter.done():\n",
        ("tests/client/test_aio_topic.py",),
    ),
)
