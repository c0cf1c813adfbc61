"""KIP-441's promise over many rebalances: whatever comes and goes, every round is valid and the last one balanced.

Here with racks and every rack-aware strategy; ``test_high_availability.py`` has the same without racks, and without
the long history of arrivals, departures and returns. A failure prints the seed and every round.
"""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, note, settings, strategies as st

from sparkrelay.assignment import HighAvailabilityTaskAssignor
from sparkrelay.protocol import LATEST_OFFSET

ASSIGNOR = HighAvailabilityTaskAssignor()


class Harness:
    """A group in which actives run, copies catch up by the next rebalance, and who left keeps old state on disk."""

    def __init__(self, groups, tasks, **configs):
        self.groups = groups
        self.tasks = tasks
        self.logged = [info.id for info in tasks if info.is_logged]
        self.configs = {"num_standby_replicas": 0, "max_warmup_replicas": 2, **configs}
        self.present = {}
        self.gone = {}
        self.rounds = []

    def join(self, number, threads=1):
        self.present[number] = (threads, self.gone.pop(number, {}))

    def leave(self, number):
        _threads, lags = self.present.pop(number)
        # What it has falls behind, but is not lost: 5,000 offsets may or may not be acceptable on return.
        self.gone[number] = {task: 5_000 if lag == LATEST_OFFSET else lag + 5_000 for task, lag in lags.items()}

    def rebalance(self):
        clients = [
            self.groups.client(number, threads=threads, lags={str(task): lag for task, lag in lags.items()})
            for number, (threads, lags) in self.present.items()
        ]
        state = self.groups.state(self.tasks, clients, **self.configs)
        answer = ASSIGNOR.assign(state)
        self.rounds.append((dict(self.present), answer))
        self.groups.check(state, answer, extra=self.configs["max_warmup_replicas"])
        for entry in answer.assignment:
            lags = dict.fromkeys(entry.standby_tasks, 0)
            lags |= {task: LATEST_OFFSET for task in entry.active_tasks if task in self.logged}
            number = entry.process_id.id.int
            self.present[number] = (self.present[number][0], lags)
        return answer

    def converge(self):
        """Rebalance until nobody asks for more; return the answer and how many rounds it took."""
        copies = len(self.logged) * (1 + self.configs["num_standby_replicas"])
        bound = 3 + 2 * math.ceil(copies / self.configs["max_warmup_replicas"])
        for used in range(1, bound + 1):
            answer = self.rebalance()
            if not answer.probing_rebalance:
                return answer, used
        return pytest.fail(f"still probing after {bound} rebalances\n{self.story()}")

    def check_balanced(self, answer):
        """No process could give a task away and still have as much per thread as the other then has."""
        for kind in (set(self.logged), None):
            counts = {
                entry.process_id.id.int: len([t for t in entry.active_tasks if kind is None or t in kind])
                for entry in answer.assignment
            }
            for source, (threads, _) in self.present.items():
                for other, (others, _) in self.present.items():
                    low, high = (counts[other] + 1) / others, (counts[source] - 1) / threads
                    assert other == source or high <= low, f"{counts}\n{self.story()}"

    def story(self):
        lines = [f"configs {self.configs}, tasks {' '.join(str(info.id) for info in self.tasks)}"]
        for number, (present, answer) in enumerate(self.rounds):
            lines.append(f"round {number}: threads { {n: threads for n, (threads, _) in present.items()} }")
            lines += [f"  {client}: {held}" for client, held in self.groups.table(answer).items()]
            lines.append(f"  probing: {answer.probing_rebalance}")
        return "\n".join(lines)


def some_tasks(groups, chance, *, logged, stateless):
    sizes = [chance.randint(1, 6) for _ in range(logged + stateless)]
    return [groups.task(f"{sub}_{n}", logged=sub < logged) for sub, size in enumerate(sizes) for n in range(size)]


@pytest.mark.parametrize(("standbys", "clients"), [(0, 1), (0, 5), (1, 2), (2, 7)])
def test_a_fresh_group_is_stable_with_its_first_assignment(groups, strategy, standbys, clients):
    tasks = [groups.task(f"{sub}_{n}", logged=sub < 2) for sub in range(3) for n in range(5)]
    group = Harness(groups, tasks, strategy=strategy, num_standby_replicas=standbys)
    for number in range(1, clients + 1):
        group.join(number)
    answer, rounds = group.converge()
    assert rounds == 1
    group.check_balanced(answer)
    assert group.rebalance() == answer


@pytest.mark.parametrize("standbys", [0, 1])
@pytest.mark.parametrize("newcomer", [0, 4, 99])
def test_one_more_process_ends_in_balance(groups, strategy, standbys, newcomer):
    tasks = [groups.task(f"{sub}_{n}") for sub in range(2) for n in range(6)]
    group = Harness(groups, tasks, strategy=strategy, num_standby_replicas=standbys)
    for number in (3, 5, 7):
        group.join(number)
    group.converge()
    group.join(newcomer)
    answer, _rounds = group.converge()
    group.check_balanced(answer)
    assert groups.actives(answer) == [3, 3, 3, 3]


@pytest.mark.parametrize("standbys", [0, 1])
@pytest.mark.parametrize("leaving", [[1], [2, 4], [1, 2, 3, 4]])
def test_processes_that_leave_end_in_balance(groups, strategy, standbys, leaving):
    tasks = [groups.task(f"{sub}_{n}", logged=sub < 2) for sub in range(3) for n in range(5)]
    group = Harness(groups, tasks, strategy=strategy, num_standby_replicas=standbys)
    for number in range(1, 6):
        group.join(number)
    group.converge()
    for number in leaving:
        group.leave(number)
    answer, _rounds = group.converge()
    group.check_balanced(answer)
    assert group.rebalance() == answer


@given(seed=st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=40)
def test_random_arrivals_departures_and_returns_end_in_balance(groups, strategy, seed):
    note(f"seed {seed}")
    chance = random.Random(seed)
    group = Harness(
        groups,
        some_tasks(groups, chance, logged=chance.randint(1, 3), stateless=chance.randint(0, 2)),
        strategy=strategy,
        num_standby_replicas=chance.randint(0, 2),
        max_warmup_replicas=chance.randint(1, 4),
        acceptable_recovery_lag=chance.choice([0, 5_000, 10_000]),
        traffic_cost=chance.choice([None, 0, 1, 10]),
        non_overlap_cost=chance.choice([None, 0, 1, 10]),
    )
    try:
        for number in chance.sample(range(30), chance.randint(1, 5)):
            group.join(number, chance.randint(1, 3))
        for _ in range(chance.randint(1, 6)):
            for _ in range(chance.randint(1, 2)):
                what = chance.random()
                if what < 0.4 and len(group.present) > 1:
                    group.leave(chance.choice(sorted(group.present)))
                elif what < 0.7 and group.gone:
                    group.join(chance.choice(sorted(group.gone)), chance.randint(1, 3))
                else:
                    known = group.present.keys() | group.gone.keys()
                    group.join(chance.choice([n for n in range(60) if n not in known]), chance.randint(1, 3))
            group.rebalance()
        answer, _rounds = group.converge()
        group.check_balanced(answer)
        assert group.rebalance() == answer, "a stable group moves nothing"
    finally:
        note(group.story())
