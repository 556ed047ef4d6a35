"""Settings that several kinds share: mistakes are one sentence each."""

from pathlib import Path

import pytest

from pyspark_topics import options
from pyspark_topics.options import ServerOptions
from pyspark_topics.pipelines import context


@pytest.mark.parametrize(("topics", "pattern"), [([], None), (["a"], "a.*")])
def test_topics_or_a_pattern(topics: list[str], pattern: str | None) -> None:
    with pytest.raises(ValueError, match="give either topics"):
        context.check_topics(topics, pattern)


def test_names_patterns_and_tables() -> None:
    context.check_topics(["a.b:c-d_1"], None)
    context.check_topics([], "a.*")
    with pytest.raises(ValueError, match='a topic cannot be called "-a": names are letters'):
        context.check_topics(["-a"], None)
    with pytest.raises(ValueError, match="pattern is not a regular expression"):
        context.check_topics([], "(")
    for wrong in (" ", "ftp://bucket/table", "s3://"):
        with pytest.raises(ValueError, match="it has to be a folder, or at s3:"):
            context.check_table(wrong)
    for right in ("lake", "s3://bucket/table", "az://container/table", "gs://bucket"):
        context.check_table(right)


@pytest.mark.parametrize(("topics", "pattern"), [(["out"], None), ([], "o.*")])
def test_a_pipeline_must_not_read_what_it_writes(topics: list[str], pattern: str | None) -> None:
    with pytest.raises(ValueError, match='"out" is one of its topics'):
        context.check_not_read("out", topics, pattern)
    context.check_not_read("another", topics, pattern)


def test_options_of_the_source() -> None:
    server = ServerOptions("http://x", "key")
    assert options.source_options(server, ["a", "b"], None, loss="rows") == {
        "url": "http://x",
        "apiKey": "key",
        "subscribe": "a,b",
        "loss": "rows",
    }
    assert options.source_options(ServerOptions("http://x"), [], "a.*") == {
        "url": "http://x",
        "subscribePattern": "a.*",
    }


def test_a_function_beside_the_declaration(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("TEN = 10\n")
    (tmp_path / "routes.py").write_text("from beside import TEN\ndef ten():\n    return TEN\n")
    assert context.load_function("routes.py:ten", tmp_path)() == 10
    with pytest.raises(ValueError, match="there is no such file"):
        context.load_function("absent.py:ten", tmp_path)
    with pytest.raises(ValueError, match=r"routes\.py has no function eleven"):
        context.load_function("routes.py:eleven", tmp_path)
    with pytest.raises(ValueError, match=r'like "routes\.py:enrich"'):
        context.load_function("routes.py", tmp_path)
