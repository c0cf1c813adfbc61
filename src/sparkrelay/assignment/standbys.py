"""Which standby placement applies: by tags if ``rack.aware.assignment.tags`` names any, else by load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.assignment.tag_standbys import TagStandbys

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sparkrelay.assignment.assignment_configs import AssignmentConfigs
    from sparkrelay.assignment.kafka_streams_state import KafkaStreamsState
    from sparkrelay.assignment.placement import Placement
    from sparkrelay.types import ProcessId

__all__ = ["place_standbys"]


def place_standbys(
    placement: Placement,
    states: Mapping[ProcessId, KafkaStreamsState],
    tasks: Sequence[int],
    configs: AssignmentConfigs,
) -> TagStandbys | None:
    """Place ``num.standby.replicas`` copies of each task; return the rules for moving them, None if there are none."""
    if not configs.rack_aware_assignment_tags:
        placement.place_standbys(tasks, configs.num_standby_replicas)
        return None
    tags = [states[process].client_tags for process in placement.processes]
    by_tags = TagStandbys(placement, tags, configs.rack_aware_assignment_tags)
    by_tags.place(tasks, configs.num_standby_replicas)
    return by_tags
