"""Java's order and the solver for large groups: two ways to one least cost, see ``rack_awareness``."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given, note, settings, strategies as st
from tests.examples import examples

from sparkrelay.assignment import KafkaStreamsState, TaskInfo
from sparkrelay.assignment.placement import rack_awareness
from sparkrelay.assignment.placement.rack_awareness import Costs, RackAwareness, cross_rack
from sparkrelay.assignment.placement.working_copy import Placement
from sparkrelay.types import ProcessId, TaskId, TopicPartition

RACKS = "abcd"
AWARE = ["min_traffic", "balance_subtopology"]
JAVAS, SOLVERS = math.inf, 0


class Case:
    """A placement, and what its optimisers need; both ways begin with a placement of their own."""

    def __init__(self, racks, tasks, homes, followers, costs, public):
        self.states = {}
        for number, rack in enumerate(racks):
            name = ProcessId.parse(f"{'08f'[number % 3]}{number:031x}")
            self.states[name] = KafkaStreamsState(process_id=name, rack_id=rack)
        self.infos = {}
        for (subtopology, partition), (inputs, logs) in tasks.items():
            at = [TopicPartition(f"in-{subtopology}-{n}", partition) for n in range(len(inputs))]
            log = TopicPartition(f"cl-{subtopology}", partition)
            info = TaskInfo.of(
                TaskId(subtopology, partition),
                inputs=at,
                changelogs=[log],
                stores=["store"],
                racks={**dict(zip(at, inputs, strict=True)), log: logs},
            )
            self.infos[info.id] = info
        self.homes, self.followers, self.costs, self.public = homes, followers, costs, public

    def placement(self):
        placement = Placement(self.states, self.infos)
        for task, (home, followers) in enumerate(zip(self.homes, self.followers, strict=True)):
            placement.active[home].add(task)
            for client in followers - {home}:
                placement.standby[client].add(task)
        return placement

    def racks(self, placement, strategy):
        return RackAwareness(placement, self.states, self.infos, strategy, public=self.public)

    def away(self, placement, held, *, logs):
        """Return how many partitions are read across racks."""
        total = 0
        for client, tasks in enumerate(held):
            rack = self.states[placement.processes[client]].rack_id
            for task in tasks:
                info = self.infos[placement.tasks[task]]
                inputs = info.input_topic_partitions
                looked_at = info.changelog_topic_partitions if logs else inputs
                if not logs and self.public:
                    looked_at = inputs | info.changelog_topic_partitions
                total += cross_rack(info, looked_at, rack)
        return total

    def moved(self, before, after):
        return sum(len(old - new) for old, new in zip(before, after, strict=True))

    def parts(self, placement, held):
        return [Counter(placement.tasks[task].subtopology for task in tasks) for tasks in held]


@st.composite
def cases(draw):
    racks = draw(st.lists(st.sampled_from(RACKS), min_size=1, max_size=7))
    replicas = st.sets(st.sampled_from(RACKS), min_size=1, max_size=3)
    sizes = draw(st.lists(st.integers(1, 7), min_size=1, max_size=4))
    tasks = {
        (subtopology, partition): (draw(st.lists(replicas, min_size=1, max_size=3)), draw(replicas))
        for subtopology, size in enumerate(sizes)
        for partition in range(size)
    }
    client = st.integers(0, len(racks) - 1)
    homes = [draw(client) for _ in tasks]
    followers = [draw(st.sets(client, max_size=3)) for _ in tasks]
    costs = {"traffic_cost": draw(st.integers(0, 12)), "non_overlap_cost": draw(st.integers(0, 12))}
    return Case(racks, tasks, homes, followers, costs, draw(st.booleans()))


def optimized(case, strategy, limit, exchange):
    """Return a placement after an exchange, the way to its answer chosen by hand."""
    placement = case.placement()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rack_awareness, "_JAVAS_ORDER_UP_TO", limit)
        exchange(case.racks(placement, strategy), placement)
    return placement


@given(case=cases(), strategy=st.sampled_from(AWARE))
@settings(deadline=None, max_examples=examples(200))
def test_actives_cost_the_same_both_ways(case, strategy):
    def exchange(racks, placement):
        racks.optimize_actives(list(range(len(placement.tasks))), Costs(**case.costs))

    before = case.placement()
    totals = []
    for limit in (JAVAS, SOLVERS):
        after = optimized(case, strategy, limit, exchange)
        note(f"{limit}: {before.active} -> {after.active}")
        assert list(map(len, after.active)) == list(map(len, before.active))
        assert sorted(task for held in after.active for task in held) == list(range(len(after.tasks)))
        assert after.standby == before.standby
        traffic = case.away(after, after.active, logs=False)
        moved = case.moved(before.active, after.active)
        totals.append(case.costs["traffic_cost"] * traffic + case.costs["non_overlap_cost"] * moved)
        if strategy == "balance_subtopology":
            sizes = Counter(task.subtopology for task in after.tasks)
            for held, parts in zip(after.active, case.parts(after, after.active), strict=True):
                for subtopology, count in parts.items():
                    assert count <= math.ceil(len(held) / len(after.tasks) * sizes[subtopology])
    assert totals[0] == totals[1]


@given(case=cases(), strategy=st.sampled_from(AWARE), stuck=st.sets(st.integers(0, 27)))
@settings(deadline=None, max_examples=examples(200))
def test_standbys_are_valid_and_no_dearer_both_ways(case, strategy, stuck):
    def exchange(racks, _placement):
        racks.optimize_standbys(
            Costs(**case.costs), strategy=strategy, may_move=lambda task, _source, _destination: task not in stuck
        )

    before = case.placement()
    for limit in (JAVAS, SOLVERS):
        after = optimized(case, strategy, limit, exchange)
        note(f"{limit}: {before.standby} -> {after.standby}")
        assert after.active == before.active
        assert list(map(len, after.standby)) == list(map(len, before.standby))
        copies = Counter(task for held in before.standby for task in held)
        assert Counter(task for held in after.standby for task in held) == copies
        assert not any(active & standby for active, standby in zip(after.active, after.standby, strict=True))
        for old, new in zip(before.standby, after.standby, strict=True):
            assert old & stuck == new & stuck, "a standby moved that may not"
        if strategy == "min_traffic":
            saved = case.away(before, before.standby, logs=True) - case.away(after, after.standby, logs=True)
            assert saved >= 0
            assert saved == 0 or case.costs["traffic_cost"] > 0
