"""The settings of a consumer: Kafka's dotted keys and defaults, checked before any thread or connection exists.

Connection keys (``bootstrap.servers``, security, ...) belong to ``client.ClientConfig``. One default differs from
Kafka's: ``max.poll.records`` is 100,000, because ``poll`` returns a table of columns, for which 500 rows are too few.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Self

from sparkrelay.client.config import ClientConfig
from sparkrelay.client.foreign_settings import FOREIGN as CLIENT_FOREIGN
from sparkrelay.consumer.base.foreign_settings import FOREIGN
from sparkrelay.errors import ConfigException
from sparkrelay.settings import check, check_sent, read, setting

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sparkrelay.consumer.base.assignor import PartitionAssignor

_POLICIES: Final = MappingProxyType({"earliest": -2, "latest": -1, "none": None})
#: Names in librdkafka and in old clients.
_ELSEWHERE: Final = MappingProxyType(
    {"smallest": "earliest", "beginning": "earliest", "largest": "latest", "end": "latest", "error": "none"}
)
_BY_DURATION: Final = "by_duration:"
_DURATION: Final = re.compile(
    r"P(?=.)(?:(?P<days>\d+)D)?(?:T(?=.)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """Settings by dotted key with underscores; times are in milliseconds, sizes in bytes.

    Attributes:
        client: the connection settings.
    """

    client: ClientConfig
    group_id: str | None = setting(None, "the group to join or to commit to")
    group_instance_id: str | None = setting(
        None, "makes the member static (KIP-345): it keeps its partitions during a short absence"
    )
    group_protocol: str = setting(
        "classic",
        "who assigns: the members (`classic`) or the broker (`consumer`, KIP-848)",
        choices=("classic", "consumer"),
    )
    group_remote_assignor: str | None = setting(
        None, "with `consumer`: the broker's assignor, `uniform` or `range`; the broker chooses if unset"
    )
    partition_assignment_strategy: str = setting(
        "range,cooperative-sticky", "built-in assignors to offer, in order of preference"
    )
    client_rack: str = setting("", "rack of this consumer")
    auto_offset_reset: str = setting(
        "latest",
        "where to start without a position: `earliest`, `latest`, `none` (an error), or a time ago: "
        "`by_duration:PT1H30M` (KIP-1106)",
    )
    enable_auto_commit: bool = setting(True, "commit what `poll` has returned")
    auto_commit_interval_ms: int = setting(5_000, "pause between automatic commits, ms")
    isolation_level: str = setting(
        "read_uncommitted",
        "whether records of open and aborted transactions are hidden",
        choices=("read_committed", "read_uncommitted"),
    )
    session_timeout_ms: int = setting(45_000, "the group waits this long for a silent member, ms", least=1)
    heartbeat_interval_ms: int = setting(
        3_000, "pause between heartbeats; their answers announce rebalances, ms", least=1
    )
    max_poll_interval_ms: int = setting(
        300_000, "a member that does not poll for this long leaves; also the bound on a rebalance, ms", least=1
    )
    default_api_timeout_ms: int = setting(60_000, "bound on blocking calls without their own timeout, ms")
    fetch_min_bytes: int = setting(1, "least data that the broker waits for, bytes")
    fetch_max_wait_ms: int = setting(500, "longest wait of the broker for data, ms", aliases=("fetch.wait.max.ms",))
    fetch_max_bytes: int = setting(52_428_800, "most data in one response, bytes")
    max_partition_fetch_bytes: int = setting(
        1_048_576, "most data of one partition in one response, bytes", aliases=("fetch.message.max.bytes",)
    )
    max_poll_records: int = setting(100_000, "most rows in one table (Kafka: 500)", least=1)
    check_crcs: bool = setting(True, "compare each batch's checksum")
    metadata_max_age_ms: int = setting(
        300_000,
        "age at which topic metadata is refreshed, ms",
        least=1,
        aliases=("topic.metadata.refresh.interval.ms",),
    )

    @property
    def read_committed(self) -> bool:
        """Whether records of open and aborted transactions are hidden."""
        return self.isolation_level == "read_committed"

    @property
    def strategies(self) -> tuple[str, ...]:
        """The assignor names in ``partition.assignment.strategy``."""
        return tuple(name.strip() for name in self.partition_assignment_strategy.split(",") if name.strip())

    def reset_timestamp(self) -> int | None:
        """Return ``auto.offset.reset`` for ListOffsets: -2 start, -1 end, or a timestamp in ms; None for ``none``."""
        return _timestamp_of(self.auto_offset_reset)

    def require_group(self, what: str) -> None:
        """Raise ConfigException if there is no ``group.id``."""
        if self.group_id is None:
            raise ConfigException(f"{what} needs a group: set group.id")

    @classmethod
    def from_dict(cls, config: Mapping[str, object], *, defaults: Mapping[str, object] | None = None) -> Self:
        """Read dotted keys.

        Args:
            config: the user's settings.
            defaults: dotted keys that replace Kafka's defaults.

        Raises:
            ConfigException: a key is unknown (the nearest is named) or rejected, malformed or out of range.
        """
        values, client = read(
            cls,
            {**(defaults or {}), **config},
            what="the consumer",
            foreign=FOREIGN,
            also=ClientConfig.keys() | CLIENT_FOREIGN.keys(),
        )
        result = cls(client=ClientConfig.from_dict(client), **values)
        result._check()
        result._check_protocol(config)
        return result

    def choose_assignors(
        self,
        given: Sequence[PartitionAssignor | str],
        offered: Callable[[Sequence[PartitionAssignor | str], tuple[str, ...]], tuple[PartitionAssignor, ...]],
    ) -> tuple[PartitionAssignor, ...]:
        """Return the client-side assignors to offer: those given, else the strategy's; none under KIP-848.

        Assignors that are given although the broker assigns raise ConfigException.
        """
        if self.group_protocol == "classic":
            return offered(given, self.strategies)
        if given:
            names = ", ".join(item if isinstance(item, str) else item.name for item in given)
            raise ConfigException(
                f"assignors={names} with group.protocol='consumer': the broker assigns; leave them out and set "
                "group.remote.assignor, or set group.protocol='classic'"
            )
        return ()

    def _check_protocol(self, given: Mapping[str, object]) -> None:
        """Reject settings that the group protocol ignores, as Kafka does."""
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
        check(self)
        _timestamp_of(self.auto_offset_reset)
        for key in ("group.id", "group.instance.id", "group.remote.assignor", "client.rack"):
            check_sent(key, getattr(self, key.replace(".", "_")))
        if self.group_id == "":
            raise ConfigException("group.id is empty; leave it out for a consumer without a group")
        if self.group_instance_id == "":
            raise ConfigException("group.instance.id is empty; leave it out for a member that is not static")
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigException(
                f"heartbeat.interval.ms={self.heartbeat_interval_ms} must be less than "
                f"session.timeout.ms={self.session_timeout_ms}, best a third of it"
            )


#: Settings that the broker decides under KIP-848, with the reason.
_CLASSIC_ONLY: Final = {
    "session.timeout.ms": "the broker decides, by group.consumer.session.timeout.ms or for one group by the group "
    "configuration consumer.session.timeout.ms",
    "heartbeat.interval.ms": "the broker decides, by group.consumer.heartbeat.interval.ms or for one group by the "
    "group configuration consumer.heartbeat.interval.ms",
    "partition.assignment.strategy": "the broker assigns, by the assignor that group.remote.assignor names",
}


def _timestamp_of(policy: str) -> int | None:
    if policy.startswith(_BY_DURATION):
        return max(0, int((time.time() - _seconds(policy)) * 1000))
    if policy not in _POLICIES:
        lower = policy.lower()
        meant = lower if lower in _POLICIES else _ELSEWHERE.get(lower)
        hint = f"; did you mean {meant!r}?" if meant else ""
        raise ConfigException(
            f"auto.offset.reset={policy!r} must be {', '.join(_POLICIES)} or {_BY_DURATION}<ISO 8601 duration>{hint}"
        )
    return _POLICIES[policy]


def _seconds(policy: str) -> float:
    found = _DURATION.fullmatch(policy.removeprefix(_BY_DURATION))
    try:
        if found is not None:
            parts = {unit: float(number) for unit, number in found.groupdict().items() if number}
            return timedelta(**parts).total_seconds()
    except OverflowError:
        pass
    raise ConfigException(
        f"auto.offset.reset={policy!r} is not a duration of days, hours, minutes and seconds, such as "
        "by_duration:PT1H30M or by_duration:P7D"
    )
