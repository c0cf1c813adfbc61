"""The settings for an assignor. See KIP-924, "AssignmentConfigs"."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final, Self

from sparkrelay.config import StreamsConfig
from sparkrelay.settings import INT32_MAX, check, setting_of

#: Kafka does not bound these; its assignors treat a negative number of standbys as none.
_ANY: Final = {"least": -INT32_MAX, "most": INT32_MAX}


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentConfigs:
    """Settings for placing tasks; defaults and ranges are those of :class:`StreamsConfig`.

    Attributes:
        acceptable_recovery_lag: Lag in offsets up to which a copy counts as caught up.
        max_warmup_replicas: Warm-ups at a time, in the whole group.
        num_standby_replicas: Standbys of each task with a changelog.
        probing_rebalance_interval_ms: Longest time until warm-ups are checked again, in ms.
        rack_aware_assignment_tags: Client tags over whose values standbys are spread.
        rack_aware_assignment_strategy: ``none``, ``min_traffic`` or ``balance_subtopology``.
        traffic_cost: Cost of reading one partition across racks; None: the assignor's default.
        non_overlap_cost: Cost of moving one task; None: the assignor's default.
    """

    acceptable_recovery_lag: int = setting_of(StreamsConfig, "acceptable_recovery_lag")
    max_warmup_replicas: int = setting_of(StreamsConfig, "max_warmup_replicas")
    num_standby_replicas: int = setting_of(StreamsConfig, "num_standby_replicas", **_ANY)
    probing_rebalance_interval_ms: int = setting_of(StreamsConfig, "probing_rebalance_interval_ms")
    rack_aware_assignment_tags: tuple[str, ...] = setting_of(StreamsConfig, "rack_aware_assignment_tags")
    rack_aware_assignment_strategy: str = setting_of(StreamsConfig, "rack_aware_assignment_strategy")
    traffic_cost: int | None = setting_of(StreamsConfig, "rack_aware_assignment_traffic_cost", **_ANY)
    non_overlap_cost: int | None = setting_of(StreamsConfig, "rack_aware_assignment_non_overlap_cost", **_ANY)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rack_aware_assignment_tags", tuple(self.rack_aware_assignment_tags))
        check(self)

    @classmethod
    def of(cls, config: StreamsConfig) -> Self:
        """Return an instance's settings for assignors."""
        renamed = {name: f"rack_aware_assignment_{name}" for name in ("traffic_cost", "non_overlap_cost")}
        return cls(**{name: getattr(config, renamed.get(name, name)) for name in (field.name for field in fields(cls))})
