"""Two instances share the work; one is killed or sleeps, and the other takes its tasks over from its standbys.

One table's topic is its changelog (`topology.optimization`), which standbys have read as far as the group; other tables
and aggregates have changelogs of their own.
"""

import signal

import pytest
from tests.waiting import LONG

pytestmark = [
    pytest.mark.integration,
    pytest.mark.chaos,
    pytest.mark.in_order,
    pytest.mark.long,
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module", params=["all", "none"])
def optimization(request):
    return request.param


def test_one_of_two_sleeps_and_wakes_while_the_other_runs_its_tasks(neighbours, ledger, share, has_everything):
    first, second = neighbours.crew
    share(first, second)
    ledger.write_and_read_half(400, neighbours.tail)
    first.signal(signal.SIGSTOP)
    ledger.wait_for_results(neighbours)
    has_everything(second)
    ledger.write_and_read_half(400, neighbours.tail)
    first.signal(signal.SIGCONT)
    ledger.wait_for_results(neighbours)
    share(first, second)
    ledger.write(100)
    ledger.wait_for_results(neighbours)


def test_a_terminated_instance_hands_over(neighbours, ledger, share, has_everything):
    first, second = neighbours.crew
    share(first, second)
    ledger.write_and_read_half(400, neighbours.tail)
    assert first.ask("wait") == "waits", first.tail()
    first.process.send_signal(signal.SIGTERM)
    assert first.process.stdout.readline().strip() == "ended NOT_RUNNING", first.tail()
    assert first.process.wait(LONG) == 0
    ledger.wait_for_results(neighbours)
    has_everything(second)
    neighbours.crew = second, neighbours.start(spare=False)
    ledger.write(100)
    ledger.wait_for_results(neighbours)


def test_the_leader_dies_over_an_assignment(neighbours, ledger, share):
    share(*neighbours.crew)
    newcomer = neighbours.take_spare()
    neighbours.arm("leader-before-answer", 1, "instance")
    ledger.write_and_read_half(400, neighbours.tail)
    # It dies itself if the group makes it its leader.
    newcomer.ask("start")
    everybody = [*neighbours.crew, newcomer]
    neighbours.wait_for_one_death(everybody)
    left = [instance for instance in everybody if instance.alive]
    assert len(left) == 2, neighbours.tail()
    share(*left)
    ledger.write(100)
    ledger.wait_for_results(neighbours)
    neighbours.crew = tuple(left)


def test_one_of_two_is_killed(neighbours, ledger, share, has_everything, kafka_admin, optimization):
    first, second = neighbours.crew
    share(first, second)
    ledger.write_and_read_half(400, neighbours.tail)
    first.kill()
    ledger.write(100)
    ledger.wait_for_results(neighbours)
    has_everything(second)
    topics = kafka_admin.list_topics(timeout=LONG).topics
    assert (f"{neighbours.application_id}-people-changelog" in topics) == (optimization == "none")
    assert second.stop() == "stopped NOT_RUNNING"
    ledger.read_again()


def test_both_are_killed_and_one_returns(neighbours, ledger, share, has_everything):
    # Tests before this one, where they ran at all, leave none of the crew.
    both = [instance for instance in neighbours.crew if instance.alive]
    while len(both) < 2:
        both.append(neighbours.start())
    share(*both)
    ledger.write_and_read_half(2000, neighbours.tail)
    for instance in both:
        instance.kill()
    one = neighbours.start(spare=False)
    ledger.wait_for_results(neighbours)
    ledger.write(100)
    ledger.wait_for_results(neighbours)
    has_everything(one)
    assert one.stop() == "stopped NOT_RUNNING"
    ledger.read_again()
