"""What the live page shows of an instance besides its snapshot: settings, topology, rebalances, other members."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class InstanceDetails:
    """Copies, like :class:`~sparkrelay.observe.snapshot.InstanceSnapshot`.

    Attributes:
        config: setting's key -> value as text; ``[hidden]`` for secrets.
        graph: the topology: ``nodes``, each with ``id``, ``kind``, ``label``, ``notes``, ``box``, and ``edges``, pairs
            of ids.
        plan: names of all known tasks of the application.
        members: each process of the group, by the first eight characters of its id -> ``host:port`` of its
            instance's page; empty if it has none.
        warming: process id -> tasks that will move there once its copy is warm.
        state_bytes: process id and task -> bytes of its local state on disk, as of its last batch or restore.
        watermarks: task and store -> milliseconds since 1970.
        reports: the newest progress reports, oldest first.
        rebalances: entries of :class:`~sparkrelay.observe.rebalance_stories.RebalanceStories`.
    """

    config: Mapping[str, str] = field(default_factory=dict)
    graph: Mapping[str, Any] = field(default_factory=lambda: {"nodes": [], "edges": []})
    plan: Sequence[str] = ()
    members: Mapping[str, str] = field(default_factory=dict)
    warming: Mapping[str, Sequence[str]] = field(default_factory=dict)
    state_bytes: Mapping[tuple[str, str], int] = field(default_factory=dict)
    watermarks: Mapping[tuple[str, str], int] = field(default_factory=dict)
    reports: Sequence[Mapping[str, Any]] = ()
    rebalances: Sequence[Mapping[str, Any]] = ()
