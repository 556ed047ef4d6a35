"""Values and the rules they obey: nothing here touches a disk or a network.

    flags, environment, topics.toml -> Settings
    request body -> TopicConfig
    a rule that was broken -> ApiError (rendered once, at the edge); names that do not belong -> UnknownFields
    the time of day -> Clock, of which tests have one that moves when told to

Every other room may import from here; this one imports nothing of ours.
"""

from topics.core.clock import NS_PER_MS, Clock, ManualClock, SystemClock, moment
from topics.core.config import (
    CLASSES,
    DEFAULT_CONFIG,
    FRESH,
    LEASE_MS_RANGE,
    ConfigBody,
    TopicConfig,
    check_config,
    config_to_json,
    config_warnings,
    effective_priority,
    eviction_warning,
    parse_config,
    resolve_config,
)
from topics.core.errors import (
    STATUS_BY_CODE,
    ApiError,
    ConfigError,
    Explained,
    InvariantViolated,
    OutcomeUnknown,
    UserMistake,
    WritesOff,
    invalid,
    limit_reached,
    short_of_memory,
    topic_not_found,
)
from topics.core.key_entries import (
    KEY_NAME,
    OF_KEY_NAMES,
    SCOPES_BY_WORD,
    KeyEntry,
    parse_key_file,
    parse_keys,
)
from topics.core.measurements import LATENCY_BOUNDS_S, Histogram
from topics.core.names import (
    did_you_mean,
    is_topic_name,
    nearest,
    require_router_name,
    require_topic_name,
    require_utf8,
)
from topics.core.record_fields import FIELDS, NODE_AT, TAG_AT, Column, NameColumns, NamedField, names_of
from topics.core.settings import (
    DEFAULT_LIMIT,
    DEFAULT_READ_BYTES,
    MAX_BATCH_RECORDS,
    MAX_BULK_RECORDS,
    MAX_CLAIM,
    MAX_HOPS,
    MAX_IDEMPOTENCY_KEY_BYTES,
    MAX_LIMIT,
    MAX_META_BYTES,
    MAX_META_KEYS,
    MAX_NODES,
    MAX_READ_BYTES,
    MAX_RECORD_BYTES,
    MAX_SEQ,
    MAX_WAIT_MS,
    MAX_WATCH_TOPICS,
    MIB,
    NO_LIFE,
    U64_MAX,
    WATCH_SESSION_IDLE_MS,
    Settings,
)
from topics.core.settings_reader import Configuration, SettingsReader, variable
from topics.core.strict import (
    UNDECODABLE,
    NotDecoded,
    Note,
    StrictDecoder,
    UnknownFields,
    explain,
    has_no_duplicates,
    undecodable,
)
