"""How long a leader thinks: ``python -m bench.assignment [--sizes 10x100,...] [--json FILE]``.

One standby, every task stateful, one process more than at the last rebalance, so that there is something to decide;
for rack awareness, three racks and two replicas of each partition. Medians of a few runs on one state in memory, as
Kafka's figures beside them (unmodified Kafka Streams 4.3.1, taken on a machine of the same kind) are. Balance is
checked, and for racks that no answer reads more across racks than the one without.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import random
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from sparkrelay.assignment import (
    ApplicationState,
    AssignmentConfigs,
    AssignmentError,
    HighAvailabilityTaskAssignor,
    KafkaStreamsState,
    LeastMovementTaskAssignor,
    ProcessId,
    StickyTaskAssignor,
    TaskId,
    TaskInfo,
    validate,
)
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from sparkrelay.assignment import TaskAssignment, TaskAssignor

RACKS = ("rack-a", "rack-b", "rack-c")
SUBTOPOLOGIES = 10
LOG = 1_000_000
#: Kafka Streams' own, in ms, and our goals.
KAFKA = {("HA", "10x100"): "0.6", ("HA", "100x1000"): "125", ("HA", "1000x10000"): "32,000-48,000"}
KAFKA |= {("HA, racks", "10x100"): "50-90", ("HA, racks", "100x1000"): "over 15 minutes"}
GOALS_MS = {("HA", "10x100"): 5, ("HA", "100x1000"): 40, ("HA", "1000x10000"): 1000}
GOALS_MS |= {("HA, racks", "10x100"): 50, ("HA, racks", "100x1000"): 1000, ("HA, racks", "1000x10000"): 60_000}


def group(clients: int, tasks: int, strategy: str = "none") -> ApplicationState:
    """Return a group in which the last of ``clients`` processes has just joined."""
    chosen = random.Random(clients)
    infos = []
    for number in range(tasks):
        task = TaskId(number % SUBTOPOLOGIES, number // SUBTOPOLOGIES)
        source, log = (TopicPartition(f"{kind}-{task.subtopology}", task.partition) for kind in ("in", "log"))
        racks = {partition: chosen.sample(RACKS, 2) for partition in (source, log)}
        infos.append(TaskInfo.of(task, inputs=[source], changelogs=[log], stores=["store"], racks=racks))
    names = [ProcessId.parse(f"{number + 1:032x}") for number in range(clients)]
    configs = AssignmentConfigs(num_standby_replicas=1, rack_aware_assignment_strategy=strategy)
    everything = frozenset(infos)
    before = ApplicationState(
        all_tasks=everything,
        clients={
            name: _process(name, index, infos, (frozenset(), frozenset())) for index, name in enumerate(names[:-1])
        },
        assignment_configs=AssignmentConfigs(num_standby_replicas=1),
    )
    first = HighAvailabilityTaskAssignor().assign(before)
    placed = {
        entry.process_id: (frozenset(entry.active_tasks), frozenset(entry.standby_tasks)) for entry in first.assignment
    }
    nothing: tuple[frozenset[TaskId], frozenset[TaskId]] = (frozenset(), frozenset())
    return ApplicationState(
        all_tasks=everything,
        clients={name: _process(name, index, infos, placed.get(name, nothing)) for index, name in enumerate(names)},
        assignment_configs=configs,
    )


def _process(
    name: ProcessId, index: int, infos: list[TaskInfo], had: tuple[frozenset[TaskId], frozenset[TaskId]]
) -> KafkaStreamsState:
    active, standby = had
    lags = dict.fromkeys((info.id for info in sorted(infos)), LOG)
    lags |= dict.fromkeys(active, -2) | dict.fromkeys(standby, 0)
    return KafkaStreamsState(
        process_id=name,
        previous_active_tasks=active,
        previous_standby_tasks=standby,
        task_lags=lags,
        rack_id=RACKS[index % len(RACKS)],
    )


def across_racks(state: ApplicationState, answer: TaskAssignment) -> int:
    """Return how many source partitions are read across racks."""
    infos = {info.id: info for info in state.all_tasks}
    return sum(
        state.clients[entry.process_id].rack_id not in infos[task].partition_to_rack_ids[partition]
        for entry in answer.assignment
        for task in entry.active_tasks
        for partition in infos[task].input_topic_partitions
    )


def measure(state: ApplicationState, assignor: TaskAssignor, runs: int) -> tuple[float, TaskAssignment]:
    """Return the median duration in ms, and the answer."""
    took = []
    for _ in range(runs):
        gc.collect()
        started = time.perf_counter()
        answer = assignor.assign(state)
        took.append((time.perf_counter() - started) * 1000)
    if validate(state, answer) is not AssignmentError.NONE:
        raise AssertionError(f"{type(assignor).__name__}: {validate(state, answer)}")
    return statistics.median(took), answer


def main() -> int:
    """Measure, check, print."""
    parser = argparse.ArgumentParser(prog="python -m bench.assignment", description=__doc__)
    parser.add_argument("--sizes", default="10x100,100x1000,1000x10000", help="clients x tasks, comma-separated")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", help="also write the figures to this file")
    given = parser.parse_args()
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores; median of {given.runs}, ms")
    print(f"{'clients x tasks':<16} {'assignor':<16} {'ms':>10}  {'goal':>8}  Kafka Streams (Java)")
    figures = []
    for size in given.sizes.split(","):
        clients, tasks = map(int, size.split("x"))
        plain, racked = group(clients, tasks), group(clients, tasks, "min_traffic")
        work: list[tuple[str, ApplicationState, TaskAssignor]] = [
            ("HA", plain, HighAvailabilityTaskAssignor()),
            ("HA, racks", racked, HighAvailabilityTaskAssignor()),
            ("Least movement", plain, LeastMovementTaskAssignor()),
        ]
        if tasks <= 1000:
            work.append(("Sticky", plain, StickyTaskAssignor()))
        crossing = {}
        for name, state, assignor in work:
            took, answer = measure(state, assignor, given.runs)
            crossing[name] = across_racks(state, answer)
            goal, kafka = GOALS_MS.get((name, size), ""), KAFKA.get((name, size), "")
            print(f"{size:<16} {name:<16} {took:>10.1f}  {goal:>8}  {kafka}", flush=True)
            figures.append({"size": size, "assignor": name, "ms": took, "across_racks": crossing[name]})
        if crossing["HA, racks"] > crossing["HA"]:
            raise AssertionError(f"racks made it worse: {crossing}")
        print(f"{'':<16} source partitions read across racks: {crossing['HA']} -> {crossing['HA, racks']}")
    if given.json:
        result = {"python": platform.python_version(), "cores": os.cpu_count(), "figures": figures}
        Path(given.json).write_text(json.dumps(result, indent=2), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
