"""What both protocols share: each has a table, which is drawn and enforced."""

import re
from pathlib import Path

import pytest
from tests.unit.consumer import classic_group, consumer_group
from tests.waiting import LONG

from sparkrelay.client.group_requests import GroupMetadata
from sparkrelay.consumer import Consumer
from sparkrelay.consumer.base.assignor import MemberAssignment
from sparkrelay.consumer.base.events import Adopted, AdoptNeeded
from sparkrelay.consumer.group import classic_membership, consumer_membership
from sparkrelay.consumer.group.membership import MemberState
from sparkrelay.errors import DisconnectException, IllegalTransitionException

PAGE = (Path(__file__).parents[4] / "docs" / "internals" / "consumer.md").read_text(encoding="utf-8")


def stray_step(membership):
    """Have the application answer a step that must not be under way."""
    membership._announce(AdoptNeeded, "x", MemberAssignment(()), GroupMetadata("g"))
    return Adopted(membership.step.number)


@pytest.mark.parametrize(
    ("title", "following"),
    [("Classic protocol", classic_membership.FOLLOWING), ("KIP-848", consumer_membership.FOLLOWING)],
)
def test_the_drawing_is_the_table(title, following):
    section = PAGE.split(f"\n### {title}\n")[1].split("\n##")[0]
    said = {"any": set(following)}
    for name, listed in re.findall(r"(\*active\*|\*In the group\*)\s+is\s+([A-Z,\s]+ or [A-Z]+)", section):
        said[name.strip("*").lower()] = {MemberState[state] for state in re.findall("[A-Z]+", listed)}
    drawn = {state: set() for state in following}
    for sources, target in re.findall(r"^\| ([A-Za-z, ]+) \| ([A-Z]+) \| .+ \|$", section, re.MULTILINE):
        for source in sources.split(", "):
            for state in said.get(source) or {MemberState[source]}:
                drawn[state].add(MemberState[target])
    assert drawn == following


def test_both_protocols_use_every_state():
    assert {*classic_membership.FOLLOWING, *consumer_membership.FOLLOWING} == set(MemberState)


@pytest.mark.parametrize("protocol", [classic_group, consumer_group])
def test_a_change_without_a_way_is_refused_with_what_came_before(driver, protocol):
    group = protocol.Group(driver)
    group.become_stable()
    before = group.state
    refusal = "member of group g: the application has adopted .* is not allowed in state STABLE.* UNSUBSCRIBED -> .*"
    with pytest.raises(IllegalTransitionException, match=refusal):
        group.reply(stray_step(group.membership))
    assert group.state is before


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_change_without_a_way_ends_the_consumer(protocol):
    consumer = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "group.protocol": protocol})
    network = consumer._network
    with pytest.raises(DisconnectException, match="is not allowed in state UNSUBSCRIBED") as raised:  # noqa: PT012
        network.submit(stray_step(network.core.membership))
        consumer.partitions_for("t", timeout=LONG)
    assert isinstance(raised.value.__cause__, IllegalTransitionException)
    consumer.close()
