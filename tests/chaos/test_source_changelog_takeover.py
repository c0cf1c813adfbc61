"""The table's topic is its changelog, and one of two instances dies: standbys have read it as far as the group."""

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.chaos, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def optimization():
    return "all"


def test_one_of_two_is_killed(neighbours, ledger, share, has_everything, kafka_admin):
    first, second = neighbours.crew
    share(first, second)
    ledger.write_and_read_half(2000, neighbours.tail)
    first.kill()
    ledger.write(200)
    ledger.wait_for_results(neighbours)
    has_everything(second)
    assert f"{neighbours.application_id}-people-changelog" not in kafka_admin.list_topics(timeout=60).topics
    assert second.stop() == "stopped NOT_RUNNING"
    ledger.read_again()
