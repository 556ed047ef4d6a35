"""Which names the options of an object store have. delta-rs passes over those that it does not know.

A name is in order if delta-rs knows it by itself, or the stores do, whose own code is asked: one that only a
later version of them knows is not refused. The names below are for finding the one that was meant.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from pyspark_topics.errors import did_you_mean

# By the prefix that names of a store may have or not. Some of Azure's have a longer one.
_OF_STORES = {
    "aws_": "access_key_id bucket bucket_name checksum_algorithm conditional_put "
    "container_authorization_token_file container_credentials_full_uri container_credentials_relative_uri "
    "copy_if_not_exists default_region disable_bulk_delete disable_tagging endpoint endpoint_url "
    "imdsv1_fallback metadata_endpoint region request_payer role_arn role_session_name s3_express "
    "secret_access_key server_side_encryption session_token skip_signature sse_bucket_key_enabled "
    "sse_customer_key_base64 sse_kms_key_id token unsigned_payload virtual_hosted_style_request "
    "web_identity_token_file",
    "azure_storage_": "access_key account_key account_name authority_id client_id client_secret endpoint "
    "sas_key sas_token tenant_id token use_emulator",
    "azure_": "authority_host authority_id client_id client_secret container_name disable_tagging endpoint "
    "federated_token_file identity_endpoint msi_endpoint msi_resource_id object_id skip_signature tenant_id "
    "use_azure_cli use_fabric_endpoint",
    "google_": "application_credentials base_url bearer_token bucket bucket_name service_account "
    "service_account_key service_account_path skip_signature",
}
# About connections, with the prefix of any store.
_OF_CONNECTIONS = (
    "allow_http allow_invalid_certificates connect_timeout default_content_type http1_only "
    "http2_keep_alive_interval http2_keep_alive_timeout http2_keep_alive_while_idle http2_max_frame_size "
    "http2_only pool_idle_timeout pool_max_idle_per_host proxy_ca_certificate proxy_excludes proxy_url "
    "randomize_addresses read_timeout timeout user_agent"
)
# Of delta-rs itself: how it commits, whom it is, how often it tries, and with how many threads.
_OF_DELTA = (
    "aws_access_key_id_dynamodb aws_ec2_metadata_disabled aws_ec2_metadata_timeout "
    "aws_endpoint_url_dynamodb aws_force_credential_load aws_iam_role_arn aws_iam_role_session_name "
    "aws_profile aws_region_dynamodb aws_s3_addressing_style aws_s3_allow_unsafe_rename "
    "aws_s3_assume_role_arn aws_s3_get_internal_server_error_retries aws_s3_locking_provider "
    "aws_s3_pool_idle_timeout_seconds aws_s3_role_session_name aws_secret_access_key_dynamodb "
    "aws_session_token_dynamodb aws_sts_pool_idle_timeout_seconds delta_dynamo_billing_mode "
    "delta_dynamo_max_elapsed_request_time delta_dynamo_table_name max_retries retry_timeout init_backoff "
    "max_backoff base backoff_config.init_backoff backoff_config.max_backoff backoff_config.base "
    "backoff.init_backoff backoff.max_backoff backoff.base concurrency_limit max_concurrency "
    "object_store_concurrency_limit multi_threaded worker_threads thread_name enable_io enable_time"
)
OF_CONNECTIONS = frozenset(_OF_CONNECTIONS.split())
PREFIXES = ("aws_", "azure_", "google_")
OF_DELTA = frozenset(_OF_DELTA.split())
_NAMES = (
    OF_DELTA
    | {name for names in _OF_STORES.values() for name in names.split()}
    | {f"{prefix}{name}" for prefix, names in _OF_STORES.items() for name in names.split()}
    | {f"{prefix}{name}" for prefix in ("", *PREFIXES) for name in OF_CONNECTIONS}
)


def unknown_options(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Those that no store knows, each with what to add to a sentence about it."""
    for name in names:
        plain = name.lower()
        if plain not in _NAMES and not _is_of_a_store(plain):
            yield name, did_you_mean(plain, sorted(_NAMES))


def _is_of_a_store(name: str) -> bool:
    # Loaded where it is needed: most tables lie in folders.
    from obstore.exceptions import UnknownConfigurationKeyError
    from obstore.store import AzureStore, GCSStore, S3Store

    kinds: tuple[Any, ...] = (S3Store, AzureStore, GCSStore)
    for kind in kinds:
        try:
            kind("any", config={name: ""})
        except UnknownConfigurationKeyError:
            continue
        except Exception:
            pass
        return True
    return False
