"""The settings of a consumer: Kafka's dotted keys and defaults, checked once, before any thread or connection exists.

Keys of the connection underneath (``bootstrap.servers``, security, ...) are ``client.ClientConfig``'s; this value
holds one. We differ from Kafka in one default: ``max.poll.records`` is 100,000, because ``poll`` gives a table of
columns, for which Kafka's 500 rows would be waste.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final, Self

from sparkrelay.client.config import ClientConfig
from sparkrelay.errors import ConfigException

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sparkrelay.consumer.assignor import PartitionAssignor

__all__ = ["ConsumerConfig"]

_INT32_MAX: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """Field names are the dotted keys with underscores; times are in milliseconds, sizes in bytes.

    Attributes:
        client: how to reach the cluster.
        group_id: the group to join or to commit to; None for a consumer without one.
        group_instance_id: makes the member static (KIP-345): it keeps its place while it is away shortly.
        group_protocol: ``classic``, or ``consumer`` (KIP-848): the broker assigns.
        group_remote_assignor: with ``consumer``, the broker's assignor (``uniform``, ``range``); None leaves it to the
            broker.
        partition_assignment_strategy: names of the built-in assignors to offer, the most wanted first.
        client_rack: rack of this consumer.
        auto_offset_reset: where to start without a position: ``earliest``, ``latest`` or ``none`` (an error).
        enable_auto_commit: commit what ``poll`` has returned, every ``auto_commit_interval_ms``.
        isolation_level: ``read_committed`` or ``read_uncommitted``.
        session_timeout_ms: a silent member is dead after this.
        heartbeat_interval_ms: pause between heartbeats; members learn of rebalances through them.
        max_poll_interval_ms: a member that does not poll for so long leaves; also the bound on a rebalance.
        default_api_timeout_ms: bound on blocking calls without a timeout of their own.
        fetch_min_bytes: the broker waits for so much data,
        fetch_max_wait_ms: but not longer than this.
        fetch_max_bytes: most data in one response.
        max_partition_fetch_bytes: most data of one partition in one response.
        max_poll_records: most rows in one table.
        check_crcs: compare each batch's checksum.
        metadata_max_age_ms: topics are looked at again after this.
    """

    client: ClientConfig
    group_id: str | None = None
    group_instance_id: str | None = None
    group_protocol: str = "classic"
    group_remote_assignor: str | None = None
    partition_assignment_strategy: str = "range,cooperative-sticky"
    client_rack: str = ""
    auto_offset_reset: str = "latest"
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    isolation_level: str = "read_uncommitted"
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    default_api_timeout_ms: int = 60_000
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 52_428_800
    max_partition_fetch_bytes: int = 1_048_576
    max_poll_records: int = 100_000
    check_crcs: bool = True
    metadata_max_age_ms: int = 300_000

    @property
    def read_committed(self) -> bool:
        """Whether records of open and aborted transactions stay hidden."""
        return self.isolation_level == "read_committed"

    @property
    def strategies(self) -> tuple[str, ...]:
        """Names in ``partition.assignment.strategy``."""
        return tuple(name.strip() for name in self.partition_assignment_strategy.split(",") if name.strip())

    @classmethod
    def from_dict(cls, config: Mapping[str, object], *, defaults: Mapping[str, object] | None = None) -> Self:
        """Read dotted keys.

        Args:
            config: what the user gave.
            defaults: dotted keys to use where the user gave nothing, instead of Kafka's defaults.

        Raises:
            ConfigException: a key is unknown (the nearest is named), malformed or out of range.
        """
        client: dict[str, object] = {}
        values: dict[str, object] = {}
        client_keys = ClientConfig.keys()
        for key, value in {**(defaults or {}), **config}.items():
            name = _ALIASES.get(key, key).replace(".", "_")
            if name in _KINDS and "_" not in key:
                values[name] = _convert(key, value, _KINDS[name])
            elif key in client_keys:
                client[key] = value
            else:
                raise ConfigException(f"unknown setting {key!r} (value {value!r}) of the consumer{_nearest(key)}")
        if isinstance(protocol := values.get("group_protocol"), str):
            values["group_protocol"] = protocol.lower()
        result = cls(client=ClientConfig.from_dict(client), **values)  # type: ignore[arg-type]
        result._check()
        result._check_protocol(config)
        return result

    def choose_assignors(
        self, given: Sequence[PartitionAssignor], built_in: Callable[[tuple[str, ...]], tuple[PartitionAssignor, ...]]
    ) -> tuple[PartitionAssignor, ...]:
        """Return the client-side assignors to offer: those given, else those of the strategy; none with KIP-848.

        Raises:
            ConfigException: there are some, but the broker assigns.
        """
        if self.group_protocol == "classic":
            return tuple(given) or built_in(self.strategies)
        if given:
            names = ", ".join(assignor.name for assignor in given)
            raise ConfigException(
                f"assignors={names} with group.protocol='consumer': there the broker assigns; leave them out and set "
                "group.remote.assignor, or set group.protocol='classic'"
            )
        return ()

    def _check_protocol(self, given: Mapping[str, object]) -> None:
        """Refuse settings that the group protocol has no use for, as Kafka does: they would seem to work."""
        if self.group_protocol == "classic":
            if self.group_remote_assignor is not None:
                raise ConfigException(
                    f"group.remote.assignor={self.group_remote_assignor!r} with group.protocol='classic': there the "
                    "members assign; set partition.assignment.strategy, or group.protocol='consumer'"
                )
            return
        for key, remedy in _CLASSIC_ONLY.items():
            if key in given:
                raise ConfigException(
                    f"{key}={given[key]!r} with group.protocol='consumer': {remedy}; leave it out, or set "
                    "group.protocol='classic'"
                )

    def _check(self) -> None:
        _one_of("group.protocol", self.group_protocol, ("classic", "consumer"))
        _one_of("auto.offset.reset", self.auto_offset_reset, ("earliest", "latest", "none"))
        _one_of("isolation.level", self.isolation_level, ("read_committed", "read_uncommitted"))
        for key, low in _LOWEST.items():
            value = getattr(self, key.replace(".", "_"))
            if not low <= value <= _INT32_MAX:
                raise ConfigException(f"{key}={value} is out of range; give {low} to {_INT32_MAX}")
        if self.group_id == "":
            raise ConfigException("group.id is empty; leave it out for a consumer without a group")
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigException(
                f"heartbeat.interval.ms={self.heartbeat_interval_ms} must be less than "
                f"session.timeout.ms={self.session_timeout_ms}, best a third of it"
            )


_KINDS: Final = {
    # Annotations are strings here (PEP 563).
    f.name: {"int": int, "bool": bool}.get(str(f.type), str)
    for f in fields(ConsumerConfig)
    if f.name != "client"
}
_LOWEST: Final = {
    "session.timeout.ms": 1,
    "heartbeat.interval.ms": 1,
    "max.poll.interval.ms": 1,
    "default.api.timeout.ms": 0,
    "fetch.min.bytes": 0,
    "fetch.max.wait.ms": 0,
    "fetch.max.bytes": 0,
    "max.partition.fetch.bytes": 0,
    "max.poll.records": 1,
    "auto.commit.interval.ms": 0,
    "metadata.max.age.ms": 1,
}
#: What the broker decides under KIP-848, and where.
_CLASSIC_ONLY: Final = {
    "session.timeout.ms": "the broker decides, by group.consumer.session.timeout.ms or for one group by the group "
    "configuration consumer.session.timeout.ms",
    "heartbeat.interval.ms": "the broker decides, by group.consumer.heartbeat.interval.ms or for one group by the "
    "group configuration consumer.heartbeat.interval.ms",
    "partition.assignment.strategy": "the broker assigns, by the assignor that group.remote.assignor names",
}
#: librdkafka's spellings of the same things.
_ALIASES: Final = {
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
}


def _one_of(key: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigException(f"{key}={value!r} is none of {', '.join(allowed)}")


def _nearest(key: str) -> str:
    known = [name.replace("_", ".") for name in _KINDS] + sorted(ClientConfig.keys())
    close = difflib.get_close_matches(key.replace("_", "."), known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


def _convert(key: str, value: object, kind: type) -> object:
    if kind is str:
        if isinstance(value, str):
            return value.strip()
        if isinstance(value, list | tuple):
            return ",".join(str(item) for item in value)
        if value is None:
            return None
    elif kind is bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.strip().lower() in {"true", "false"}:
            return value.strip().lower() == "true"
    elif isinstance(value, int) and not isinstance(value, bool):
        return value
    elif isinstance(value, str):
        try:
            return int(value.strip())
        except ValueError:
            pass
    names = {str: "string", bool: "boolean", int: "whole number"}
    raise ConfigException(f"{key}={value!r} is not a valid {names[kind]}")
