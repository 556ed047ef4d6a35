from __future__ import annotations

import pytest

from pyspark_topics.pipelines import object_store
from pyspark_topics.pipelines.object_store import unknown_options


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("aws_regoin", ', did you mean "aws_region"'),
        ("AWS_ACESS_KEY_ID", ', did you mean "aws_access_key_id"'),
        ("regionn", ', did you mean "region"'),
        ("azure_storage_acount_name", ', did you mean "azure_storage_account_name"'),
        ("google_service_acount", ', did you mean "google_service_account"'),
        ("alow_http", ', did you mean "allow_http"'),
        ("max_retrys", ', did you mean "max_retries"'),
        ("zzzz", ""),
    ],
)
def test_a_name_that_no_store_knows_is_told_with_the_nearest(name: str, hint: str) -> None:
    assert list(unknown_options(["aws_region", name])) == [(name, hint)]


def test_every_name_is_one_that_the_stores_know_or_delta_alone() -> None:
    """Held against the code of the stores: a name below that they do not know would hide a mistake."""
    stores = object_store._NAMES - object_store.OF_DELTA
    assert [name for name in sorted(stores) if not object_store._is_of_a_store(name)] == []
    assert [name for name in sorted(object_store.OF_DELTA) if object_store._is_of_a_store(name)] == []


@pytest.mark.parametrize(
    "name",
    [
        "AWS_S3_ALLOW_UNSAFE_RENAME",
        "Aws_Region",
        "region",
        "aws_timeout",
        "azure_allow_http",
        "google_user_agent",
        "backoff_config.max_backoff",
        "AZURE_STORAGE_MASTER_KEY",
        "aws_endpoint_url_s3",
    ],
)
def test_names_of_any_case_with_and_without_a_prefix_are_known(name: str) -> None:
    assert list(unknown_options([name])) == []
