"""The settings of topics: their names and types, and a topic that must have some."""

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

import msgspec

from topics.client.encoding import encode_json
from topics.client.errors import ConfigDiffers, Forbidden, Refused, TopicNotFound
from topics.client.wire.session import Session, state_path, topic_path
from topics.core.config import TopicConfig, config_to_json, parse_config
from topics.core.errors import ApiError


class LogSettings(TypedDict, total=False):
    """The settings of a topic, except its type."""

    ttl_ms: int
    cap_records: int
    cap_bytes: int
    discard: Literal["old", "reject"]
    durable: bool
    durability: Literal["ephemeral", "memory", "disk", "fsync"]
    priority: int | None
    auto_priority: bool
    auto_create: bool
    idempotency_window_ms: int
    dedupe_node: bool
    lease_ms: int
    claim_jitter_ms: int
    max_deliveries: int
    dead_letter: str | None
    leases_durable: bool


class TopicSettings(LogSettings, total=False):
    """All settings of a topic."""

    type: Literal["log", "queue"]


NAMES = tuple(field.name for field in msgspec.structs.fields(TopicConfig))


def check_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Raise `TypeError` on an unknown name, and `ValueError` on a value that the setting cannot have."""
    unknown = [name for name in settings if name not in NAMES]
    if unknown:
        raise TypeError(f"{unknown[0]!r} is no setting of a topic; there are {', '.join(NAMES)}")
    resolved(settings)
    return dict(settings)


def resolved(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as the server would resolve them, with defaults and clamped values."""
    try:
        return config_to_json(parse_config(encode_json(dict(settings))))
    except ApiError as error:
        raise ValueError(error.message) from None


class WantedTopic:
    """The settings that a topic must have before the first write, push or claim."""

    def __init__(self, session: Session, topic: str, settings: Mapping[str, Any]) -> None:
        self._session = session
        self._topic = topic
        self._settings = check_settings(settings) if settings else {}
        self.is_there = not settings
        # The topic's own lease, once it is known.
        self.lease_ms: int | None = None

    @property
    def is_given(self) -> bool:
        return bool(self._settings)

    async def ensure(self, *, again: bool = False) -> None:
        """Create the topic if it is missing; raise `ConfigDiffers` if it has other settings."""
        if self.is_there and not again:
            return
        while True:
            try:
                state = await self._session.ask("GET", state_path(self._topic))
                self._compare(state["config"])
                self.lease_ms = state["config"]["lease_ms"]
                break
            except TopicNotFound:
                await self._make()
            except Forbidden:
                # The key may write, but not read the settings. The write tells whether the topic exists.
                if again:
                    await self._make()
                break
        self.is_there = True

    async def _make(self) -> None:
        """Create the topic, or accept that another program has just done so."""
        headers = (("If-None-Match", "*"),)
        try:
            await self._session.ask("PUT", topic_path(self._topic), self._settings, headers=headers)
        except Refused as refusal:
            if refusal.code != "topic_exists":
                raise

    def _compare(self, found: dict[str, Any]) -> None:
        wanted = resolved(self._settings)
        differences = {
            name: (wanted[name], found.get(name))
            for name in self._settings
            if wanted[name] != found.get(name)
        }
        if differences:
            raise ConfigDiffers(self._topic, differences)
