"""Groups under KIP-848 on a real broker: the broker assigns, and no partition is ever owned twice."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.integration


def shared(parts, *members):
    """Tell whether members hold all partitions, each once and evenly."""
    held = [member.held for member in members]
    even = max(map(len, held)) - min(map(len, held)) <= 1
    return even and sum(map(len, held)) == parts and len(set().union(*held)) == parts


@pytest.fixture
def modern(members):
    """`members`, under `group.protocol=consumer`."""

    def make(topics, **config):
        classic = {"partition_assignment_strategy", "heartbeat_interval_ms", "session_timeout_ms"}
        return members(topics, without=classic, **{"group_protocol": "consumer"} | config)

    make.owners = members.owners
    return make


@pytest.mark.parametrize("fetching", [True, False])
def test_members_join_leave_and_die_and_no_partition_is_owned_twice(modern, make_topic, wait_until, fetching):
    topic = make_topic("kip848", partitions=7)
    a = modern([topic], fetching=fetching)
    wait_until(lambda: shared(7, a), "a alone")
    b = modern([topic], fetching=fetching)
    wait_until(lambda: shared(7, a, b), "a and b")
    c = modern([topic], fetching=fetching)
    wait_until(lambda: shared(7, a, b, c), "all three")
    assert not any(kind == "lost" for m in (a, b, c) for kind, _ in m.story)

    b.stop()
    wait_until(lambda: shared(7, a, c), "b has left")
    c.vanish()
    wait_until(lambda: shared(7, a), "c has died")

    assert modern.owners.clashes == []
    assert a.errors == b.errors == []
