"""The settings that an assignor may look at. See KIP-924, "AssignmentConfigs"."""

from __future__ import annotations

from dataclasses import dataclass

from sparkrelay.errors import ConfigException

__all__ = ["RACK_AWARE_STRATEGIES", "AssignmentConfigs"]

RACK_AWARE_STRATEGIES = ("none", "min_traffic", "balance_subtopology")
_MOST_TAGS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentConfigs:
    """Settings of the group that matter for placing tasks; defaults and ranges are Kafka's.

    Attributes:
        acceptable_recovery_lag: Offsets behind at which a copy counts as caught up.
        max_warmup_replicas: Extra copies, in the whole group, that may be warming up at once.
        num_standby_replicas: Standbys of each task with a changelog.
        probing_rebalance_interval_ms: Longest wait until warm-ups are looked at again, in ms.
        rack_aware_assignment_tags: Client tags over whose values standbys are spread.
        rack_aware_assignment_strategy: ``none``, ``min_traffic`` or ``balance_subtopology``.
        traffic_cost: Cost of reading one partition across racks; None leaves it to the assignor.
        non_overlap_cost: Cost of moving one task; None leaves it to the assignor.
    """

    acceptable_recovery_lag: int = 10_000
    max_warmup_replicas: int = 2
    num_standby_replicas: int = 0
    probing_rebalance_interval_ms: int = 600_000
    rack_aware_assignment_tags: tuple[str, ...] = ()
    rack_aware_assignment_strategy: str = "none"
    traffic_cost: int | None = None
    non_overlap_cost: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "rack_aware_assignment_tags", tuple(self.rack_aware_assignment_tags))
        _at_least("acceptable.recovery.lag", self.acceptable_recovery_lag, 0)
        _at_least("max.warmup.replicas", self.max_warmup_replicas, 1)
        _at_least("probing.rebalance.interval.ms", self.probing_rebalance_interval_ms, 60_000)
        if len(self.rack_aware_assignment_tags) > _MOST_TAGS:
            raise ConfigException(
                f"Invalid value {list(self.rack_aware_assignment_tags)} for configuration "
                f"rack.aware.assignment.tags: at most {_MOST_TAGS} tags are allowed"
            )
        if self.rack_aware_assignment_strategy not in RACK_AWARE_STRATEGIES:
            raise ConfigException(
                f"Invalid value {self.rack_aware_assignment_strategy} for configuration "
                f"rack.aware.assignment.strategy: String must be one of: {', '.join(RACK_AWARE_STRATEGIES)}"
            )


def _at_least(key: str, value: int, least: int) -> None:
    if value < least:
        raise ConfigException(f"Invalid value {value} for configuration {key}: Value must be at least {least}")
