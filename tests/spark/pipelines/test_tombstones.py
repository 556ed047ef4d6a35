"""Loss as records of a derived topic."""

from pyspark_topics.loss import as_rows, as_text, together


def test_the_text_is_compact_and_its_keys_keep_their_order() -> None:
    assert as_text("é", 1, None, "recreated") == (
        '{"kind":"tombstone","topic":"é","gap_from":1,"gap_to":null,"reason":"recreated"}'
    )


def test_rows_as_the_sink_takes_them() -> None:
    assert as_rows(["{}"]).to_pydict() == {"data": ["{}"], "tag": ["tombstone"]}
    assert as_rows(["{}", "[]"], "losses").to_pydict() == {
        "data": ["{}", "[]"],
        "tag": ["tombstone", "tombstone"],
        "topic": ["losses", "losses"],
    }


def test_what_was_asked_and_what_tasks_met_is_told_once() -> None:
    """More may be lost between the two, and a stretch may have been met in two pieces."""
    met = [as_text("a", 4, 7, "cap"), as_text("a", 1, 3, "cap"), as_text("a", 1, 3, "cap")]
    asked = [as_text("a", 1, 5, "cap"), as_text("a", 9, 10, "lost"), as_text("b", 1, 0, "recreated")]
    assert together(met, asked) == [
        as_text("a", 1, 3, "cap"),
        as_text("a", 4, 7, "cap"),
        as_text("a", 9, 10, "lost"),
        as_text("b", 1, 0, "recreated"),
    ]
    assert together([], asked) == asked
    assert together([as_text("a", 2, 3, "cap")], [as_text("a", 1, 5, "cap")]) == [
        as_text("a", 1, 1, "cap"),
        as_text("a", 2, 3, "cap"),
        as_text("a", 4, 5, "cap"),
    ]


def test_seqs_of_an_earlier_life_cover_nothing_of_this_one() -> None:
    unread, begin = as_text("a", 5, 10, "recreated"), as_text("a", 1, 8, "recreated")
    assert together([unread], [unread, begin]) == [begin, unread]
    assert together([unread], [as_text("a", 4, 8, "cap")]) == [as_text("a", 4, 8, "cap"), unread]
