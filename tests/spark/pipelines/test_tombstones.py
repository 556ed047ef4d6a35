"""Loss as records of a derived topic."""

from pyspark_topics.pipelines.tombstones import as_rows, as_text


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
