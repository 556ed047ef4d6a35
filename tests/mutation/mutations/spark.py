"""Spark's edges: archives that meet, tables of others, losses beside a query, offsets that never were."""

from tests.mutation.runner import Mutation

MUTATIONS = (
    Mutation(
        "commit-from-another-position",
        "Two archives of one topic, or one and a driver thought dead, write each record to the table once.",
        "../pyspark_topics/pipelines/lake.py",
        "            if found != since.get(topic):\n",
        "            if False:\n",
        ("tests/spark/pipelines/test_lake.py",),
    ),
    Mutation(
        "fill-any-table",
        "A table that does not fit an archive is refused as it is; nothing is written to it.",
        "../pyspark_topics/pipelines/lake.py",
        "        refuse_other_table(table, Schema.from_arrow(RECORDS))\n        if columns",
        "        if columns",
        ("tests/spark/pipelines/test_lake.py",),
    ),
    Mutation(
        "make-one-table-of-two",
        "An archive that is refused because the place of its gaps is taken has made no table.",
        "../pyspark_topics/pipelines/tables/opening.py",
        "        list(threads.map(Wanted.refuse_taken, lacking))\n",
        "",
        ("tests/spark/pipelines/test_lake.py",),
    ),
    Mutation(
        "announce-only-what-tasks-meet",
        "What a route's sources lost is announced in its topic, whatever its query reads of them.",
        "../pyspark_topics/pipelines/tombstones.py",
        "    return sorted(dict.fromkeys([*met, *rest]), key=_place)\n",
        "    return sorted(met, key=_place)\n",
        ("tests/spark/pipelines/test_tombstones.py",),
    ),
    Mutation(
        "take-files-again-everywhere",
        "A file that is to be skipped or taken again is so by the load whose file it is, and by no other.",
        "../pyspark_topics/pipelines/loading/loaded.py",
        "        return os.path.isfile(path) and path in map(os.path.abspath, found)\n",
        "        return os.path.isfile(path) or path in map(os.path.abspath, found)\n",
        ("tests/spark/pipelines/test_loaded.py",),
    ),
    Mutation(
        "make-up-columns",
        "A column that a route's table has no more is not made up: the query is made anew.",
        "../pyspark_topics/pipelines/tables/joined.py",
        "            if field.name not in kinds:\n",
        "            if False:\n",
        ("tests/spark/pipelines/test_tables.py",),
    ),
    Mutation(
        "pass-over-unknown-storage-options",
        "An option of an object store that nothing knows is refused, with the nearest name.",
        "../pyspark_topics/pipelines/tables/option_names.py",
        "        if plain not in _NAMES and not _is_of_a_store(plain):\n",
        "        if False:\n",
        ("tests/spark/pipelines/test_option_names.py",),
    ),
)
