"""A what-if scenario: a group, its state and speeds, and its churn. A plain row, so that a DataFrame can hold it."""

from __future__ import annotations

import enum
import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sparkrelay.assignment import AssignmentConfigs
from sparkrelay.config import StreamsConfig
from sparkrelay.errors import ConfigException
from sparkrelay.settings import settings_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_SETTINGS: Final = settings_of(StreamsConfig)
#: Limit on clients x tasks of generated scenarios with rack awareness, whose cost exceeds everything else: thousands of
#: scenarios must take minutes.
_MOST_PAIRS = 100
#: The least value of a field.
_AT_LEAST: Final = {
    **dict.fromkeys(["churn_size", "clients", "threads", "partitions", "racks", "max_rebalances"], 1),
    **dict.fromkeys(
        ["subtopologies", "stateless_subtopologies", "standbys", "initial_lag", "lost_rack", "records_per_task"], 0
    ),
    **dict.fromkeys(["bytes_per_record", "input_rate", "follow_up_min_interval_s", "rebalance_s", "detection_s"], 0),
    **dict.fromkeys(["downtime_s", "pause_s", "cleanup_delay_s"], 0),
}


class Churn(enum.StrEnum):
    """The kinds of churn. ``calm`` is the control group: a rebalance without a reason, which should move nothing."""

    CALM = "calm"
    SCALE_OUT = "scale-out"
    SCALE_IN = "scale-in"
    ROLLING_BOUNCE = "rolling-bounce"
    RACK_LOSS = "rack-loss"
    FLAPPING = "flapping"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A group before the churn, and the churn. All measures follow from these values alone.

    Attributes:
        scenario: Its number in the study.
        seed: Seed of task sizes, process ids, racks of replicas, and the processes that the churn hits.
        churn: A value of :class:`Churn`.
        churn_size: Processes that join or leave (scale-out, scale-in), or deaths of one process (flapping).
        clients: Processes before the churn.
        threads: Stream threads of each.
        subtopologies: Subtopologies with a changelogged store.
        stateless_subtopologies: Subtopologies without.
        partitions: Partitions, and tasks, of each subtopology.
        standbys: ``num.standby.replicas``.
        max_warmups: ``max.warmup.replicas``.
        acceptable_lag: ``acceptable.recovery.lag``, records.
        initial_lag: Lag of standbys when the churn begins, records.
        racks: Racks; processes are spread over them in turn, replicas of partitions at random.
        rack_strategy: ``rack.aware.assignment.strategy``.
        lost_rack: The rack whose processes and replicas rack-loss removes.
        records_per_task: Mean length of a task's changelog when the churn begins, records.
        size_spread: Task sizes are uniform in mean x (1 - spread .. 1 + spread).
        bytes_per_record: Bytes of a record, in inputs and changelogs.
        restore_rate: Records per second that a process restores, shared by the copies it restores at a time.
        input_rate: Records per second that a running task adds to its changelog.
        probing_interval_s: ``probing.rebalance.interval.ms`` in seconds; at least 60.
        follow_up: Whether a member requests a rebalance when a copy has warmed up (``follow.up.when.caught.up``).
        follow_up_min_interval_s: The greatest pause between two such requests, seconds.
        rebalance_s: Duration of a rebalance, from the request to the answer, seconds.
        detection_s: Time until the group notices a dead process (``session.timeout.ms``), seconds.
        downtime_s: Time that a bounced or flapping process is away, seconds.
        pause_s: Time from its return to the next bounce or death, seconds.
        cleanup_delay_s: ``state.cleanup.delay.ms`` in seconds, after which unused copies are removed.
        max_rebalances: Limit on rebalances after the last event; beyond it the group does not converge.
        max_hours: Limit on simulated hours after the last event, likewise.
    """

    scenario: int = 0
    seed: int = 0
    churn: str = Churn.SCALE_OUT.value
    churn_size: int = 1
    clients: int = 3
    threads: int = 1
    subtopologies: int = 1
    stateless_subtopologies: int = 0
    partitions: int = 8
    standbys: int = 1
    max_warmups: int = _SETTINGS["max_warmup_replicas"].default
    acceptable_lag: int = _SETTINGS["acceptable_recovery_lag"].default
    initial_lag: int = 0
    racks: int = 1
    rack_strategy: str = _SETTINGS["rack_aware_assignment_strategy"].default
    lost_rack: int = 0
    records_per_task: int = 1_000_000
    size_spread: float = 0.0
    bytes_per_record: int = 200
    restore_rate: int = 100_000
    input_rate: int = 100
    probing_interval_s: float = _SETTINGS["probing_rebalance_interval_ms"].default / 1000
    follow_up: bool = _SETTINGS["follow_up_when_caught_up"].default
    follow_up_min_interval_s: float = _SETTINGS["follow_up_min_interval_ms"].default / 1000
    rebalance_s: float = 1.0
    detection_s: float = 10.0
    downtime_s: float = 60.0
    pause_s: float = 120.0
    cleanup_delay_s: float = _SETTINGS["state_cleanup_delay_ms"].default / 1000
    max_rebalances: int = 150
    max_hours: float = 48.0

    def __post_init__(self) -> None:
        if self.churn not in list(Churn):
            raise ConfigException(f"churn={self.churn!r} is not known; use one of {', '.join(Churn)}")
        for name, least in _AT_LEAST.items():
            if not getattr(self, name) >= least:
                raise ConfigException(f"{name}={getattr(self, name)} of a scenario must be at least {least}")
        if not self.restore_rate > 0:
            raise ConfigException(f"restore_rate={self.restore_rate} of a scenario must be above 0 records per second")
        if not 0 <= self.size_spread <= 1:
            raise ConfigException(f"size_spread={self.size_spread} of a scenario must be from 0 to 1")
        if self.subtopologies + self.stateless_subtopologies == 0:
            raise ConfigException("a scenario needs at least one subtopology, with state or without")
        if self.churn == Churn.SCALE_IN and self.churn_size >= self.clients:
            raise ConfigException(
                f"scale-in by churn_size={self.churn_size} leaves nobody of clients={self.clients}; take fewer away"
            )
        if self.churn == Churn.RACK_LOSS and not self.lost_rack < self.racks <= self.clients:
            raise ConfigException(
                f"rack-loss with racks={self.racks}, lost_rack={self.lost_rack} and clients={self.clients}: "
                "the lost rack must exist, and every rack must have a client"
            )
        if self.churn == Churn.RACK_LOSS and self.racks == 1:
            raise ConfigException("rack-loss with racks=1 leaves nobody; give the scenario at least 2 racks")
        _ = self.configs  # refuses what Kafka refuses

    @property
    def configs(self) -> AssignmentConfigs:
        """The settings that the assignor sees."""
        return AssignmentConfigs(
            acceptable_recovery_lag=self.acceptable_lag,
            max_warmup_replicas=self.max_warmups,
            num_standby_replicas=self.standbys,
            probing_rebalance_interval_ms=round(self.probing_interval_s * 1000),
            rack_aware_assignment_strategy=self.rack_strategy,
        )

    @property
    def tasks(self) -> int:
        """Number of tasks, with state and without."""
        return (self.subtopologies + self.stateless_subtopologies) * self.partitions


def mixed_scenarios(count: int, *, seed: int = 0, kinds: Iterable[str] | None = None) -> Iterator[Scenario]:
    """Yield scenarios of all sizes, cycling through the kinds of churn; the same seed yields the same scenarios.

    Args:
        count: Number of scenarios.
        seed: Scenario ``i`` depends on ``seed`` and ``i`` alone.
        kinds: Kinds of churn; None for all.
    """
    turns = [Churn(kind) for kind in kinds] if kinds is not None else list(Churn)
    for number in range(count):
        yield _mixed(number, seed, turns[number % len(turns)])


def _mixed(number: int, seed: int, churn: Churn) -> Scenario:
    chance = random.Random(f"{seed}/{number}")
    # A rolling bounce takes two rebalances per client.
    clients = _of_any_size(chance, 2, 8 if churn is Churn.ROLLING_BOUNCE else 12)
    stateful, stateless = chance.choice(((1, 0), (1, 1), (2, 0), (2, 1), (3, 0)))
    partitions = max(1, _of_any_size(chance, 8, 80) // (stateful + stateless))
    racks = min(chance.choice((1, 2, 3)), clients)
    if churn is Churn.RACK_LOSS:
        racks = max(2, racks)
    size = _of_any_size(chance, 20_000, 5_000_000)
    restore_rate = _of_any_size(chance, 50_000, 500_000)
    tasks = (stateful + stateless) * partitions
    # A process that restores every task must outpace their growth.
    input_rate = chance.randint(1, max(1, restore_rate // (4 * tasks)))
    churn_size = 1
    if churn is Churn.SCALE_OUT:
        churn_size = chance.randint(1, max(1, clients // 2))
    elif churn is Churn.SCALE_IN:
        churn_size = chance.randint(1, max(1, clients // 3))
    elif churn is Churn.FLAPPING:
        churn_size = chance.randint(2, 5)
    standbys = chance.choice((0, 1, 1, 1, 2))
    return Scenario(
        scenario=number,
        seed=chance.getrandbits(31),
        churn=churn.value,
        churn_size=churn_size,
        clients=clients,
        threads=chance.choice((1, 2, 4)),
        subtopologies=stateful,
        stateless_subtopologies=stateless,
        partitions=partitions,
        standbys=standbys,
        max_warmups=chance.choice((2, 2, 4, 8)),
        acceptable_lag=chance.choice((0, 1_000, 10_000, 10_000)),
        initial_lag=chance.choice((0, 0, 0, 1_000, size // 2)) if standbys else 0,
        racks=racks,
        rack_strategy=chance.choice(("none", "min_traffic"))
        if racks > 1 and clients * tasks <= _MOST_PAIRS
        else "none",
        lost_rack=chance.randrange(racks),
        records_per_task=size,
        size_spread=chance.choice((0.0, 0.5)),
        bytes_per_record=chance.choice((100, 200, 1_000)),
        restore_rate=restore_rate,
        input_rate=input_rate,
        probing_interval_s=chance.choice((60.0, 600.0)),
        follow_up=chance.random() < 0.75,
        rebalance_s=chance.choice((0.5, 1.0, 3.0)),
        detection_s=chance.choice((6.0, 10.0, 45.0)),
        downtime_s=chance.choice((20.0, 60.0)),
        pause_s=chance.choice((30.0, 120.0)),
    )


def _of_any_size(chance: random.Random, least: int, most: int) -> int:
    """Draw log-uniformly: small groups are common, large ones expensive to simulate."""
    return round(math.exp(chance.uniform(math.log(least), math.log(most))))
