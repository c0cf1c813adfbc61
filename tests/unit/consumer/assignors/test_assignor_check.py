from __future__ import annotations

from types import SimpleNamespace

import pytest

from sparkrelay.consumer.assignors.assignor_check import checked_assignment, checked_user_data
from sparkrelay.consumer.base.assignor import ClusterView, MemberAssignment, MemberSubscription
from sparkrelay.errors import KafkaException
from sparkrelay.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
CLUSTER = ClusterView({"t": (0, 1)})
MINE = SimpleNamespace(name="mine", supports_cooperative=False)
COOPERATIVE = SimpleNamespace(name="mine", supports_cooperative=True)


def group(**owned):
    return {m: MemberSubscription(frozenset({"t"}), frozenset(parts)) for m, parts in owned.items()}


def check(answer, assignor=MINE, members=None):
    return checked_assignment(assignor, answer, CLUSTER, members or group(m1=[], m2=[]))


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (None, "returned None, not a mapping"),
        ([("m1", MemberAssignment())], "not a mapping"),
        ({"m3": MemberAssignment()}, "'m3', which is not a member"),
        ({7: MemberAssignment()}, "7, which is not a member"),
        ({"m1": [T0]}, "not a MemberAssignment"),
        ({"m1": MemberAssignment(("t-0",))}, "'t-0' to m1, which is not a TopicPartition"),
        ({"m1": MemberAssignment((TopicPartition("t", -1),))}, "not a TopicPartition"),
        ({"m1": MemberAssignment((TopicPartition("t", "0"),))}, "not a TopicPartition"),
        ({"m1": MemberAssignment((TopicPartition("t", 2),))}, "t-2 to m1, but the topic has 2 partitions"),
        ({"m1": MemberAssignment((T0, T0))}, "t-0 twice: to m1 and to m1"),
        ({"m1": MemberAssignment((T0,)), "m2": MemberAssignment((T0,))}, "t-0 twice: to m1 and to m2"),
        ({"m1": MemberAssignment((), "text")}, "'text' to m1, which is not bytes"),
    ],
)
def test_nonsense_is_refused_by_the_assignors_name(answer, what):
    with pytest.raises(KafkaException, match=what) as raised:
        check(answer)
    assert "assignor 'mine'" in str(raised.value)


def test_a_partition_that_may_be_new_is_worth_another_try():
    with pytest.raises(KafkaException) as raised:
        check({"m1": MemberAssignment((TopicPartition("t", 2),))})
    assert raised.value.retriable


def test_every_member_gets_an_answer():
    answer = check({"m1": MemberAssignment((T0, T1), b"data")})
    assert answer == {"m1": MemberAssignment((T0, T1), b"data"), "m2": MemberAssignment()}


def test_topics_that_the_assignor_made_are_its_own_affair():
    made = TopicPartition("made", 3)
    assert check({"m1": MemberAssignment((made,))})["m1"].partitions == (made,)


def test_only_eager_assignors_may_take_and_give_at_once():
    answer = {"m1": MemberAssignment((T0,)), "m2": MemberAssignment((T1,))}
    held = group(m1=[T1], m2=[T0])
    assert check(answer, MINE, held) == answer
    with pytest.raises(KafkaException, match="gives t-1 to m2 while m1 still holds it"):
        check(answer, COOPERATIVE, held)
    # Two say that they hold it: one of them may keep it.
    assert check({"m1": MemberAssignment((T0,))}, COOPERATIVE, group(m1=[T0], m2=[T0]))["m1"].partitions == (T0,)


def test_user_data_is_bytes():
    assert checked_user_data(MINE, bytearray(b"x")) == b"x"
    with pytest.raises(KafkaException, match=r"'mine': subscription_user_data\(\) returned None; return bytes"):
        checked_user_data(MINE, None)
