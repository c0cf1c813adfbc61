"""An `on_assigned` that fails is called again, and its partitions are not read before it has returned."""

from __future__ import annotations

import pytest

from sparkrelay.client.group_requests import GroupMetadata
from sparkrelay.consumer.api.exchanges import blocking
from sparkrelay.consumer.api.rebalance import RebalanceSteps
from sparkrelay.consumer.base.assignor import MemberAssignment
from sparkrelay.consumer.base.events import AdoptNeeded
from sparkrelay.consumer.base.mailbox import Mailbox
from sparkrelay.consumer.base.subscription import SubscriptionState
from sparkrelay.consumer.group.membership import LostPartitions
from sparkrelay.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Group:
    """A consumer's side of its rebalances."""

    def __init__(self):
        self.subscription, self.mailbox = SubscriptionState(), Mailbox()
        self.steps = RebalanceSteps(self, self.subscription, [], before_revoking=lambda: None)
        self.steps.set_callbacks(self.assigned, None, None)
        self.subscription.subscribe(["t"])
        self.calls, self.error = [], None

    def assigned(self, consumer, partitions):
        self.calls.append(list(partitions))
        if self.error is not None:
            raise self.error

    def adopt(self, *partitions):
        step = AdoptNeeded(1, "x", MemberAssignment(partitions), GroupMetadata("g", 1, "m"))
        error = blocking(self.steps.adopt(step, lambda answer: None), self.mailbox)
        for partition in partitions:
            self.subscription.seek(partition, 0)
        return error

    def again(self):
        return blocking(self.steps.introduce_again(), self.mailbox)

    def readable(self):
        return [p for p in (T0, T1) if self.subscription.may_return(p)]


@pytest.fixture
def group():
    return Group()


def test_nothing_is_called_again_if_nothing_failed(group):
    assert group.adopt(T0) is None
    assert group.readable() == [T0]
    assert group.again() is None
    assert group.calls == [[T0]]


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()])
def test_until_it_returns_its_partitions_are_held_back(group, error):
    group.adopt(T0)
    group.error = error
    assert group.adopt(T0, T1) is error
    assert group.readable() == [T0]
    assert group.again() is error
    assert group.readable() == [T0]
    group.error = None
    assert group.again() is None
    assert group.readable() == [T0, T1]
    assert group.again() is None
    assert group.calls == [[T0], [T1], [T1], [T1]]


def test_partitions_that_are_gone_meanwhile_are_not_reported(group):
    group.error = ValueError("no")
    group.adopt(T0, T1)
    group.error = None
    group.adopt(T1)
    assert group.calls == [[T0, T1], [T1]]
    assert group.readable() == [T1]
    assert group.again() is None
    assert group.calls == [[T0, T1], [T1]]


@pytest.mark.parametrize("again", [False, True])
def test_kafka_20321_what_is_lost_while_the_callback_runs_is_not_read(group, again):
    """The network thread notices meanwhile; the step that drops the partitions comes next."""

    def lost(consumer, partitions):
        LostPartitions(lambda: GroupMetadata("g", -1, ""), group.subscription).poll(0.0)

    group.adopt(T0)
    if again:
        group.error = ValueError("no")
        group.adopt(T0, T1)
    group.steps.set_callbacks(lost, None, None)
    assert (group.again() if again else group.adopt(T0, T1)) is None
    assert group.readable() == []
