"""Small groups whose figures can be worked out by hand."""

import math

import pytest

from sparkrelay.simulate.cluster import Cluster, Role
from sparkrelay.simulate.scenario import Scenario


def cluster_of(processes, ends, *, stateless=0, racks=1, replicas=frozenset({0}), **settings):
    """Stateful tasks with these changelogs, all settled on nobody, every process a member."""
    scenario = Scenario(
        clients=processes,
        subtopologies=1,
        partitions=len(ends) + stateless,
        racks=racks,
        **{"restore_rate": 1_000, "input_rate": 0, "acceptable_lag": 100} | settings,
    )
    made = Cluster(
        scenario,
        ends=[float(end) for end in ends],
        replica_racks=[replicas] * (len(ends) + stateless),
        process_count=processes,
    )
    for number in range(processes):
        made.join(number)
    return made


def run(cluster):
    """Let time pass until nothing changes any more."""
    warmed = 0
    while (step := cluster.next_change_s()) < math.inf:
        warmed += cluster.advance(step)
    return warmed


def test_an_active_restores_before_it_runs():
    cluster = cluster_of(1, [5_000])
    assert cluster.follow({0: ({0}, set())}) is False
    assert cluster.running == [False]
    run(cluster)
    assert cluster.now == pytest.approx(5)
    assert cluster.running == [True]
    assert cluster.down_task_s == pytest.approx(5)
    assert cluster.restored_records == pytest.approx(5_000)
    assert cluster.copies_built == 1


def test_copies_share_the_restore_speed():
    cluster = cluster_of(1, [1_000, 3_000])
    cluster.follow({0: ({0, 1}, set())})
    run(cluster)
    # Both at 500 a second until the first is there after 2 s, then the other alone: 2,000 more in 2 s.
    assert cluster.now == pytest.approx(4)
    assert cluster.down_task_s == pytest.approx(2 + 4)


def test_actives_restore_before_standbys():
    cluster = cluster_of(2, [1_000, 1_000])
    cluster.put_in_place({0: (set(), set()), 1: ({1}, set())})
    cluster.follow({0: ({0}, {1}), 1: ({1}, set())})
    cluster.advance(1)
    assert cluster.running == [True, True]
    assert cluster.restored_records == 1_000  # nothing of the standby yet
    assert run(cluster) == 1
    assert cluster.now == pytest.approx(2)


def test_a_stateless_task_runs_at_once():
    cluster = cluster_of(1, [], stateless=2)
    cluster.follow({0: ({0, 1}, set())})
    assert cluster.running == [True, True]
    assert cluster.copies_built == 0


def test_a_changelog_grows_only_while_its_task_runs():
    cluster = cluster_of(1, [1_000], input_rate=10)
    cluster.follow({0: ({0}, set())})
    run(cluster)
    assert cluster.ends == [1_000]
    cluster.advance(7)
    assert cluster.ends == [1_070]


def test_a_standby_chases_a_growing_changelog_and_reports_when_it_is_warm():
    cluster = cluster_of(2, [9_900], input_rate=10, acceptable_lag=100)
    cluster.put_in_place({0: ({0}, set()), 1: (set(), set())})
    cluster.follow({0: ({0}, set()), 1: (set(), {0})})
    # It gains 990 a second on 9,900 records; warm is half of the acceptable lag: 50 records to go.
    step = cluster.next_change_s()
    assert step == pytest.approx((9_900 - 50) / 990)
    assert cluster.advance(step) is True
    run(cluster)
    assert cluster.now == pytest.approx(10)
    assert cluster.restored_records == pytest.approx(10_000)


def test_a_standby_slower_than_its_changelog_never_arrives():
    cluster = cluster_of(2, [100], input_rate=2_000)
    cluster.put_in_place({0: ({0}, set()), 1: (set(), set())})
    cluster.follow({0: ({0}, set()), 1: (set(), {0})})
    assert cluster.next_change_s() == math.inf
    assert cluster.catching_up


def test_a_running_task_is_handed_over_in_two_rebalances():
    cluster = cluster_of(2, [1_000])
    cluster.put_in_place({0: ({0}, set()), 1: (set(), {0})})
    moved = {0: (set(), {0}), 1: ({0}, set())}
    assert cluster.follow(moved) is True
    assert cluster.owner == [None]
    assert cluster.running == [False]
    assert cluster.follow(moved) is False
    assert cluster.owner == [1]
    assert cluster.running == [True]  # its standby was caught up
    assert cluster.tasks_moved == 1
    assert cluster.copies_built == 0
    assert cluster.processes[0].copies[0].role is Role.STANDBY


def test_a_crash_stops_tasks_and_keeps_what_is_on_disk():
    cluster = cluster_of(2, [1_000], input_rate=10)
    cluster.put_in_place({0: ({0}, set()), 1: (set(), {0})})
    cluster.crash(0)
    assert cluster.owner == [0]  # the group does not know yet
    assert cluster.running == [False]
    cluster.detect(0)
    assert cluster.owner == [None]
    assert cluster.members == [1]
    cluster.follow({1: ({0}, set())})
    cluster.advance(10)
    cluster.join(0)
    copy = cluster.processes[0].copies[0]
    assert copy.role is Role.CLOSED
    assert copy.offset == 1_000
    cluster.follow({0: (set(), {0}), 1: ({0}, set())})
    assert not copy.cold  # 100 behind is acceptable
    assert cluster.tasks_moved == 1


def test_closed_copies_are_forgotten_after_the_cleanup_delay():
    cluster = cluster_of(2, [1_000], cleanup_delay_s=60)
    cluster.put_in_place({0: ({0}, set()), 1: (set(), {0})})
    cluster.follow({0: ({0}, set()), 1: (set(), set())})
    cluster.advance(60)
    cluster.forget_closed()
    assert 0 in cluster.processes[1].copies
    cluster.advance(1)
    cluster.forget_closed()
    assert 0 not in cluster.processes[1].copies


def test_a_task_is_exposed_while_it_has_no_caught_up_standby():
    cluster = cluster_of(2, [2_000])
    cluster.put_in_place({0: ({0}, set()), 1: (set(), set())})
    cluster.follow({0: ({0}, set()), 1: (set(), {0})})
    run(cluster)
    assert cluster.exposed_task_s == pytest.approx(2)
    cluster.advance(5)
    assert cluster.exposed_task_s == pytest.approx(2)


def test_reads_across_racks_are_counted():
    cluster = cluster_of(2, [1_000], racks=2, replicas=frozenset({0}), input_rate=10)
    cluster.put_in_place({0: ({0}, set()), 1: (set(), set())})
    assert cluster.cross_rack_records_per_s() == 0
    cluster.follow({0: ({0}, set()), 1: (set(), {0})})
    run(cluster)
    assert cluster.cross_rack_records_per_s() == 10  # the standby on rack 1 follows a changelog on rack 0
    assert cluster.cross_rack_restored_records == cluster.restored_records > 0


def test_imbalance_is_in_tasks_per_thread():
    cluster = cluster_of(2, [0] * 5, threads=2)
    cluster.follow({0: ({0, 1, 2, 3}, set()), 1: ({4}, set())})
    assert cluster.imbalance() == 1.5
