"""Single transitions of KIP-848 membership, and what its heartbeats say."""

from __future__ import annotations

import logging
import re
import uuid

import pytest

from sparkrelay.client.broker_errors import ErrorCode
from sparkrelay.client.messages import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from sparkrelay.client.metadata import Metadata
from sparkrelay.consumer.consumer_membership import ConsumerMembership, State
from sparkrelay.consumer.events import Adopted, AdoptNeeded, Hold, JoinNeeded, Mailbox, Prepared
from sparkrelay.consumer.flows import blocking
from sparkrelay.consumer.group_requests import MemberSettings
from sparkrelay.consumer.heartbeats import HeartbeatManager
from sparkrelay.consumer.rebalance import RebalanceSteps
from sparkrelay.consumer.requests import RequestState
from sparkrelay.consumer.subscription import SubscriptionState
from sparkrelay.errors import AuthorizationException, DisconnectException, UnsupportedVersionException
from sparkrelay.types import TopicPartition

T, U = uuid.UUID(int=1), uuid.UUID(int=2)
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
IDS = {"t": T, "u": U}
NAME = "ConsumerGroupHeartbeat"


class Located:
    node, last_error, losses = 1, None, 0

    def need(self):
        return self.node

    def lost(self, why):
        self.losses += 1

    def moved(self, code):
        if code in {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}:
            self.lost(code)
            return True
        return False


class Topics:
    def __init__(self):
        self.asked = []

    def ask(self, topics, done):
        self.asked.append((topics, done))


class Group:
    """One membership with its heartbeats, and shortcuts through its life."""

    def __init__(self, driver, **settings):
        self.steps, self.errors, self.coordinator, self.topics = [], [], Located(), Topics()
        self.cluster, self.names = Metadata(), {T: "t", U: "u"}
        self.cluster.topic_name = self.names.get
        self.membership = ConsumerMembership(
            MemberSettings(group_id="g", **settings), coordinator=self.coordinator, topics=self.topics,
            metadata=self.cluster, tell=self.steps.append, fail=self.errors.append,
        )  # fmt: skip
        heartbeats = HeartbeatManager(
            self.membership, self.coordinator, session_timeout=float("inf"), state=RequestState(0.1, 1.0, jitter=0.0)
        )
        self.driver = driver(self.membership, heartbeats)

    @property
    def state(self):
        return self.membership.state

    @property
    def epoch(self):
        return self.membership.metadata.generation

    def subscribe(self, topics=("t",), pattern=None):
        self.membership.subscribe(frozenset(topics), pattern, self.driver.now)

    def step(self, kind):
        step = self.steps.pop(0)
        assert isinstance(step, kind)
        return step

    def reply(self, answer):
        self.membership.answered(answer, self.driver.now)

    def beat(self, partitions=None, epoch=1, *, code=0, text=None, interval=3000, wait=0.0):
        """Have the next heartbeat leave and answer it; return it."""
        if not any(type(u.request) is ConsumerGroupHeartbeatRequest for u in self.driver.waiting):
            assert self.driver.pass_time(wait) == [NAME]
        return self.driver.answer(NAME, response(partitions, epoch, code=code, text=text, interval=interval))

    def adopt(self, partitions, **fields):
        """The application does as it is told."""
        self.driver.poll()
        step = self.step(AdoptNeeded)
        assert set(step.assignment.partitions) == set(partitions)
        self.reply(Adopted(step.number, owned=frozenset(partitions), **fields))
        return step

    def settle(self, partitions=(T0,), epoch=1):
        self.subscribe({p.topic for p in partitions} or ("t",))
        self.beat(partitions, epoch)
        self.adopt(partitions)
        request = self.beat(epoch=epoch)
        assert self.state is State.STABLE
        return request

    def lose(self):
        """The application drops what it holds."""
        step = self.step(JoinNeeded)
        assert step.hold is Hold.LOSE
        self.reply(Prepared(step.number))


def response(partitions=None, epoch=1, *, code=0, text=None, interval=3000):
    assignment = None
    if partitions is not None:
        make, by_topic = ConsumerGroupHeartbeatResponse.Assignment, {}
        for partition in partitions:
            by_topic.setdefault(IDS[partition.topic], []).append(partition.partition)
        assignment = make(
            topic_partitions=[make.TopicPartitions(topic_id=i, partitions=p) for i, p in by_topic.items()]
        )
    return ConsumerGroupHeartbeatResponse(
        error_code=code, error_message=text, member_id=None, member_epoch=epoch,
        heartbeat_interval_ms=0 if code else interval, assignment=assignment,
    )  # fmt: skip


def said(request):
    return None if request.topic_partitions is None else {t.topic_id: t.partitions for t in request.topic_partitions}


@pytest.fixture
def group(driver):
    return Group(driver)


# -- joining and reconciling ------------------------------------------------------------------------------------------


def test_the_way_into_a_group(group):
    group.subscribe(["t", "u"])
    assert group.state is State.JOINING
    assert group.epoch == -1
    join = group.beat([T0, T1], 5)
    assert (join.group_id, join.member_epoch, join.rebalance_timeout_ms) == ("g", 0, 300_000)
    assert join.member_id == group.membership.metadata.member_id != ""
    assert (join.subscribed_topic_names, said(join)) == (["t", "u"], {})
    assert (join.instance_id, join.server_assignor, join.rack_id) == (None, None, None)
    assert group.state is State.RECONCILING
    assert group.epoch == 5
    step = group.adopt([T0, T1])
    assert step.metadata.generation == 5
    assert group.state is State.ACKNOWLEDGING
    acknowledgement = group.beat(epoch=5)  # at once, without waiting for the interval
    assert (acknowledgement.member_epoch, said(acknowledgement)) == (5, {T: [0, 1]})
    assert acknowledgement.subscribed_topic_names is None
    assert acknowledgement.rebalance_timeout_ms == -1
    assert group.state is State.STABLE
    assert group.driver.poll() == []


def test_a_joining_member_tells_all_its_settings(driver):
    group = Group(driver, group_instance_id="i", rack="r", remote_assignor="range", max_poll_interval=7.0)
    join = group.subscribe() or group.beat([])
    assert (join.instance_id, join.rack_id, join.server_assignor) == ("i", "r", "range")
    assert join.rebalance_timeout_ms == 7000


def test_an_empty_assignment_is_told_to_the_application_as_well(group):
    group.subscribe()
    group.beat([])
    group.adopt([])
    assert said(group.beat()) == {}
    assert group.state is State.STABLE


def test_the_broker_says_how_often_heartbeats_come(group):
    group.settle()
    assert group.driver.pass_time(2.9) == []
    request = group.beat(wait=0.1, interval=10_000)
    assert said(request) is None
    group.beat(wait=3, interval=10_000)
    assert group.driver.pass_time(9.9) == []
    assert group.driver.pass_time(0.1) == [NAME]


def test_what_goes_to_others_is_given_up_and_acknowledged_before_more_is_taken(group):
    group.settle([T0])
    group.beat([T1], 2, wait=3)
    assert group.state is State.RECONCILING
    group.adopt([T1])
    assert said(group.beat(epoch=2)) == {T: [1]}
    assert group.state is State.STABLE


def test_one_reconciliation_at_a_time_the_next_target_follows(group):
    group.settle([T0])
    group.beat([T0, T1], 2, wait=3)
    group.driver.poll()
    step = group.step(AdoptNeeded)
    group.beat([T1], 3, wait=3)
    assert group.steps == []
    group.reply(Adopted(step.number, owned=frozenset([T0, T1])))
    assert said(group.beat(epoch=3)) == {T: [0, 1]}  # the truth
    assert group.state is State.RECONCILING
    group.adopt([T1])
    assert said(group.beat(epoch=3)) == {T: [1]}
    assert group.state is State.STABLE


def test_an_assignment_taken_back_before_it_was_adopted_is_acknowledged_without_callbacks(group):
    group.settle([T0])
    group.names.pop(U)
    group.beat([T0, U0], 2, wait=3)
    group.driver.poll()
    assert said(group.beat(epoch=2)) == {T: [0]}
    assert group.state is State.RECONCILING  # the other topic has no name yet
    group.beat([T0], 3, wait=3)
    group.driver.poll()
    assert said(group.beat(epoch=3)) == {T: [0]}
    assert group.state is State.STABLE
    assert group.steps == []


def test_the_same_assignment_again_is_no_news(group):
    group.settle([T0])
    group.beat([T0], 2, wait=3)
    assert group.state is State.STABLE
    assert group.epoch == 2


def test_an_interrupted_step_is_acknowledged_as_it_ended_and_tried_again(group):
    group.settle([T0])
    group.beat([T1], 2, wait=3)
    group.driver.poll()
    group.reply(Adopted(group.step(AdoptNeeded).number, owned=frozenset([T0])))
    assert said(group.beat(epoch=2)) == {T: [0]}
    assert group.state is State.RECONCILING
    group.adopt([T1])
    assert said(group.beat(epoch=2)) == {T: [1]}


# -- topic ids --------------------------------------------------------------------------------------------------------


def test_topics_without_names_wait_and_are_looked_up(group):
    group.names.pop(U)
    group.subscribe(["t", "u"])
    group.beat([T0, U0])
    group.adopt([T0])
    assert group.topics.asked[0][0] == {"t", "u"}
    group.beat()
    assert group.state is State.RECONCILING
    group.topics.asked.pop(0)[1]()
    group.driver.pass_time(0.9)
    assert group.topics.asked == []
    group.driver.pass_time(0.2)
    assert len(group.topics.asked) == 1  # once a second
    group.names[U] = "u"
    group.adopt([T0, U0])
    assert said(group.beat()) == {T: [0], U: [0]}
    assert group.state is State.STABLE


def test_nothing_is_adopted_while_no_topic_has_a_name(group):
    group.names.clear()
    group.subscribe(pattern=re.compile("t.*"), topics=())
    group.beat([T0])
    group.driver.poll()
    assert group.steps == []
    assert group.topics.asked[0][0] is None  # the broker matched: it may be any topic
    group.names[T] = "t"
    group.adopt([T0])


def test_a_name_once_known_is_remembered_while_the_topic_is_held(group):
    group.settle([T0])
    group.names.clear()
    group.beat([T0, T1], 2, wait=3)
    group.adopt([T0, T1])


def test_an_answer_to_a_look_up_of_an_earlier_life_means_nothing(group):
    group.names.clear()
    group.subscribe()
    group.beat([T0])
    group.driver.poll()
    known = group.topics.asked.pop()[1]
    group.membership.fenced(ErrorCode.UNKNOWN_MEMBER_ID)
    group.lose()
    group.beat([T0])
    group.driver.poll()
    before = group.membership._look_up_at
    known()
    assert group.membership._look_up_at == before


# -- what heartbeats say ----------------------------------------------------------------------------------------------


def test_after_a_failure_everything_is_said_again(group):
    group.settle([T0])
    group.driver.pass_time(3)
    group.driver.answer(NAME, error=DisconnectException("gone"))
    assert group.coordinator.losses == 1
    request = group.beat([T0], wait=0.1)
    assert (request.subscribed_topic_names, said(request)) == (["t"], {T: [0]})
    assert (request.rebalance_timeout_ms, request.member_epoch) == (300_000, 1)
    assert said(group.beat(wait=3)) is None


@pytest.mark.parametrize(
    ("code", "losses"),
    [
        (ErrorCode.NOT_COORDINATOR, 1),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, 1),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 0),
    ],
)
def test_a_coordinator_that_moves_or_loads_is_asked_again(group, code, losses):
    group.settle([T0])
    group.beat(code=code, wait=3)
    assert group.coordinator.losses == losses
    assert group.state is State.STABLE
    assert said(group.beat(wait=0.1)) == {T: [0]}


def test_no_step_begins_while_a_heartbeat_that_says_what_is_held_is_unanswered(group):
    """The broker may be giving to others what that heartbeat leaves out."""
    group.settle([T0])
    group.driver.pass_time(3)
    group.driver.answer(NAME, error=DisconnectException("gone"))
    group.driver.pass_time(0.1)  # everything again, on its way
    group.membership._take_target({T: frozenset([0, 1])})
    group.driver.poll()
    assert group.steps == []
    group.beat([T0])
    group.driver.poll()
    assert group.steps == []
    assert said(group.beat()) == {T: [0]}  # the target came and went


def test_while_a_step_is_under_way_its_partitions_are_held_too(group):
    group.settle([T0])
    group.beat([T1], 2, wait=3)
    group.driver.poll()
    step = group.step(AdoptNeeded)
    group.driver.pass_time(3)
    group.driver.answer(NAME, error=DisconnectException("gone"))
    assert said(group.beat([T1], 2, wait=0.1)) == {T: [0, 1]}
    group.reply(Adopted(step.number, owned=frozenset([T1])))
    assert said(group.beat(epoch=2)) == {T: [1]}


def test_a_changed_subscription_is_told_at_once(group):
    group.settle([T0])
    group.subscribe(["t", "u"])
    request = group.beat()
    assert request.subscribed_topic_names == ["t", "u"]
    assert said(request) is None
    assert group.driver.poll() == []


def test_patterns_are_for_the_broker(group):
    group.subscribe((), re.compile("t.*"))
    join = group.beat([T0])
    assert (join.subscribed_topic_names, join.subscribed_topic_regex) == ([], "t.*")
    assert join._min_version == 1
    group.adopt([T0])
    assert group.beat().subscribed_topic_regex is None
    group.subscribe((), re.compile("u.*", re.IGNORECASE))
    assert group.beat().subscribed_topic_regex == "(?i:u.*)"
    group.subscribe(["t"])
    request = group.beat()
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (["t"], "")
    group.driver.pass_time(3)
    group.driver.answer(NAME, error=DisconnectException("gone"))
    assert group.beat(wait=0.1).subscribed_topic_regex is None


def test_a_first_version_broker_gives_the_member_its_id(group):
    group.subscribe()
    group.driver.poll()
    message = response([])
    message.member_id = "theirs"
    group.driver.answer(NAME, message)
    assert group.membership.metadata.member_id == "theirs"


# -- expelled ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND]
)
def test_an_expelled_member_loses_everything_and_joins_anew(group, code):
    group.settle([T0], 4)
    member = group.membership.metadata.member_id
    group.beat(code=code, wait=3)
    assert group.state is State.FENCED
    assert group.epoch == -1
    assert group.driver.pass_time(10) == []  # until the application has dropped its partitions
    group.lose()
    assert group.state is State.JOINING
    join = group.beat([T1], 6, wait=1)
    assert (join.member_id, join.member_epoch, said(join)) == (member, 0, {})
    group.adopt([T1])


@pytest.mark.parametrize("stage", ["before the step", "during the step", "before the acknowledgement"])
def test_results_of_before_being_expelled_are_ignored(group, stage):
    """KAFKA-16375."""
    group.subscribe()
    group.beat([T0])
    step = None
    if stage != "before the step":
        group.driver.poll()
        step = group.step(AdoptNeeded)
    if stage == "before the acknowledgement":
        group.reply(Adopted(step.number, owned=frozenset([T0])))
    group.membership.fenced(ErrorCode.UNKNOWN_MEMBER_ID)
    if stage == "during the step":
        assert step.cancelled
        group.reply(Adopted(step.number, owned=frozenset([T0])))
    assert group.state is State.FENCED
    group.lose()
    assert said(group.beat([T1], 7)) == {}
    assert group.state is State.RECONCILING
    if stage == "during the step":
        group.reply(Adopted(step.number, owned=frozenset([T0])))
    assert group.state is State.RECONCILING
    group.adopt([T1])
    assert said(group.beat(epoch=7)) == {T: [1]}


def test_an_answer_to_a_heartbeat_of_an_earlier_life_is_ignored(group):
    group.settle([T0])
    group.driver.pass_time(3)
    group.membership.fenced(ErrorCode.UNKNOWN_MEMBER_ID)
    group.lose()
    group.driver.answer(NAME, response([T1], 9))
    assert group.state is State.JOINING
    assert group.epoch == -1
    assert group.beat([]).member_epoch == 0


def test_a_member_refused_while_joining_tries_ever_more_slowly(group):
    group.subscribe()
    group.beat(code=ErrorCode.FENCED_MEMBER_EPOCH)
    group.lose()
    assert group.driver.pass_time(0.05) == []
    group.beat(code=ErrorCode.FENCED_MEMBER_EPOCH, wait=0.06)
    group.lose()
    assert group.driver.pass_time(0.15) == []
    assert group.driver.pass_time(0.06) == [NAME]


def test_losing_that_was_interrupted_is_done_again(group):
    group.settle()
    group.membership.fenced(ErrorCode.UNKNOWN_MEMBER_ID)
    group.reply(Prepared(group.step(JoinNeeded).number, error=KeyboardInterrupt()))
    assert group.state is State.FENCED
    group.lose()
    assert group.state is State.JOINING


def test_a_commit_may_bring_the_news_first(group):
    group.settle()
    group.membership.fenced(ErrorCode.UNKNOWN_MEMBER_ID)
    assert group.state is State.FENCED
    group.membership.fenced(ErrorCode.UNKNOWN_MEMBER_ID)
    assert len(group.steps) == 1


# -- static members ---------------------------------------------------------------------------------------------------


def farewell_then_join(group, code=0):
    """What a static member does that may be in the group already: it frees its name, then joins."""
    assert group.driver.answer(NAME, response(epoch=-2, code=code)).member_epoch == -2
    assert group.driver.find(NAME).request.member_epoch == 0


def test_a_static_member_that_is_fenced_frees_its_name_before_it_joins_again(driver):
    """Otherwise its own name is refused to it: the broker has it with an epoch that is not -2."""
    group = Group(driver, group_instance_id="i")
    group.settle([T0])
    group.beat(code=ErrorCode.FENCED_MEMBER_EPOCH, wait=3)
    group.lose()
    assert group.driver.pass_time(1) == [NAME, NAME]
    farewell_then_join(group)
    group.beat([T0], 5)
    assert group.epoch == 5
    group.adopt([T0])
    group.beat(epoch=5)
    assert group.driver.pass_time(1) == []


def test_a_static_member_whose_first_heartbeat_was_not_answered_frees_its_name(driver):
    group = Group(driver, group_instance_id="i")
    group.subscribe()
    assert group.driver.poll() == [NAME]
    group.driver.answer(NAME, error=DisconnectException("gone"))
    group.coordinator.node = None
    assert group.driver.pass_time(1) == []
    group.coordinator.node = 2
    assert group.driver.poll() == [NAME, NAME]
    farewell_then_join(group)
    # The broker dealt with the first one last: its connection was another one.
    group.driver.answer(NAME, response(code=ErrorCode.UNRELEASED_INSTANCE_ID))
    assert group.state is State.JOINING
    assert group.driver.pass_time(1) == [NAME, NAME]
    farewell_then_join(group)
    group.beat([T0], 5)
    assert group.state is State.RECONCILING
    assert group.errors == []


def test_a_name_that_another_member_has_is_refused_also_after_a_heartbeat_without_an_answer(driver):
    group = Group(driver, group_instance_id="i")
    group.subscribe()
    group.driver.poll()
    group.driver.answer(NAME, error=DisconnectException("gone"))
    assert group.driver.pass_time(1) == [NAME, NAME]
    farewell_then_join(group, code=ErrorCode.FENCED_INSTANCE_ID)
    group.driver.answer(NAME, response(code=ErrorCode.UNRELEASED_INSTANCE_ID))
    assert group.state is State.FATAL


@pytest.mark.parametrize("instance", [None, "i"])
def test_who_joins_for_the_first_time_or_has_no_name_frees_none(driver, instance):
    group = Group(driver, group_instance_id=instance)
    group.subscribe()
    assert group.driver.poll() == [NAME]
    if instance is None:
        group.driver.answer(NAME, error=DisconnectException("gone"))
        assert group.driver.pass_time(1) == [NAME]
    assert group.driver.find(NAME).request.member_epoch == 0


# -- errors for good --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "names"),
    [
        (ErrorCode.UNRELEASED_INSTANCE_ID, r"group\.instance\.id='i'.*UNRELEASED_INSTANCE_ID"),
        (ErrorCode.FENCED_INSTANCE_ID, r"group\.instance\.id='i'.*FENCED_INSTANCE_ID"),
        (ErrorCode.UNSUPPORTED_ASSIGNOR, r"group\.remote\.assignor='best'.*UNSUPPORTED_ASSIGNOR"),
        (ErrorCode.INVALID_REGULAR_EXPRESSION, r"pattern='\(\?=x\)'.*INVALID_REGULAR_EXPRESSION"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, r"group\.id='g'.*GROUP_AUTHORIZATION_FAILED"),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, r"GROUP_MAX_SIZE_REACHED.*group\.max\.size"),
        (ErrorCode.INVALID_REQUEST, r"the broker says why.*INVALID_REQUEST"),
        (ErrorCode.GROUP_ID_NOT_FOUND, r"group\.id='g'.*GROUP_ID_NOT_FOUND"),
        (ErrorCode.UNSUPPORTED_VERSION, r"group\.protocol='consumer'.*group\.version=1.*group\.protocol='classic'"),
    ],
)
def test_errors_that_joining_again_does_not_change_name_the_setting(driver, code, names):
    group = Group(driver, group_instance_id="i", remote_assignor="best")
    group.subscribe((), re.compile("(?=x)"))
    group.beat(code=code, text="the broker says why")
    assert group.state is State.FATAL
    assert group.membership.given_up
    assert re.search(names, str(group.errors[0])), group.errors[0]
    assert group.driver.pass_time(100) == []
    group.subscribe(["t"])
    assert group.driver.pass_time(100) == []  # not before unsubscribe()


@pytest.mark.parametrize(
    ("code", "farewells"), [(ErrorCode.GROUP_AUTHORIZATION_FAILED, [NAME]), (ErrorCode.FENCED_INSTANCE_ID, [])]
)
def test_who_gives_up_says_farewell_unless_it_is_no_member(driver, make_call, code, farewells):
    group = Group(driver, group_instance_id="i")
    group.settle()
    group.beat(code=code, wait=3)
    assert group.state is State.FATAL
    assert group.driver.poll() == farewells
    if farewells:
        assert group.driver.answer(NAME, response(epoch=-2)).member_epoch == -2
    call = make_call()
    group.membership.leave(call, "closing")
    assert call.done
    assert group.driver.pass_time(100) == []


def test_a_broker_that_does_not_know_the_message_is_named(group):
    group.subscribe()
    group.driver.poll()
    group.driver.answer(NAME, error=UnsupportedVersionException("broker 1 is too old"))
    assert group.state is State.FATAL
    assert re.search(r"group\.protocol='classic' until then \(broker 1 is too old\)", str(group.errors[0]))


def test_missing_rights_for_a_topic_are_told_and_the_member_asks_again(group):
    group.subscribe()
    group.beat(code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert isinstance(group.errors[0], AuthorizationException)
    assert group.state is State.JOINING
    assert group.beat([], wait=0.1).member_epoch == 0


def test_after_a_fatal_error_and_unsubscribe_the_consumer_may_start_again(group, make_call):
    group.subscribe()
    group.beat(code=ErrorCode.GROUP_MAX_SIZE_REACHED)
    call = make_call()
    group.membership.leave(call, "unsubscribed")
    assert call.done
    group.subscribe()
    assert group.state is State.JOINING


# -- leaving ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("i", -2)])
@pytest.mark.parametrize("state", [State.JOINING, State.RECONCILING, State.ACKNOWLEDGING, State.STABLE])
def test_a_member_says_farewell_from_every_state(driver, make_call, state, instance, epoch):
    group = Group(driver, group_instance_id=instance)
    group.subscribe()
    group.driver.poll()
    if state is not State.JOINING:
        group.beat([T0])
        group.driver.poll()
    if state in {State.ACKNOWLEDGING, State.STABLE}:
        group.reply(Adopted(group.step(AdoptNeeded).number, owned=frozenset([T0])))
    if state is State.STABLE:
        group.beat()
    assert group.state is state
    group.driver.waiting.clear()
    call = make_call()
    group.membership.leave(call, "closing")
    assert group.epoch == -1
    assert group.driver.poll() == [NAME]
    assert group.state is State.UNSUBSCRIBED
    assert not call.done
    farewell = group.driver.answer(NAME, response(epoch=epoch))
    assert (farewell.member_epoch, farewell.instance_id) == (epoch, instance)
    assert farewell.member_id
    assert call.done
    assert group.driver.pass_time(100) == []


def test_farewell_goes_out_although_a_heartbeat_is_under_way(group, make_call):
    group.settle()
    group.driver.pass_time(3)
    group.membership.leave(make_call(), "closing")
    assert group.driver.poll() == [NAME]
    group.driver.answer(NAME, response([T1], 8))  # of the heartbeat
    assert group.state is State.UNSUBSCRIBED
    assert group.epoch == -1


@pytest.mark.parametrize("failure", [DisconnectException("gone"), None])
def test_a_farewell_that_fails_holds_nobody_up(group, make_call, failure):
    group.settle()
    call = make_call()
    group.membership.leave(call, "closing")
    group.driver.poll()
    refusal = None if failure else response(code=ErrorCode.UNKNOWN_MEMBER_ID)
    group.driver.answer(NAME, refusal, failure)
    assert call.done
    assert call.result() is None


@pytest.mark.parametrize("why", ["nobody heard of it", "no coordinator", "expelled", "not subscribed", "twice"])
def test_nothing_is_said_where_there_is_nothing_to_leave(group, make_call, why):
    """KAFKA-19357, KAFKA-18569: no coordinator is waited or looked for."""
    if why == "nobody heard of it":
        group.subscribe()
    elif why != "not subscribed":
        group.settle()
    if why == "no coordinator":
        group.coordinator.node = None
    elif why == "expelled":
        group.membership.fenced(ErrorCode.UNKNOWN_MEMBER_ID)
    elif why == "twice":
        group.membership.leave(make_call(), "closing")
        group.driver.poll()
        group.driver.waiting.clear()
    call = make_call()
    group.membership.leave(call, "closing")
    assert call.done
    assert group.driver.pass_time(1) == []
    assert group.state is State.UNSUBSCRIBED
    assert not group.membership.subscribed


def test_whoever_subscribes_again_at_once_says_farewell_first(group, make_call):
    group.settle()
    group.membership.leave(make_call(), "unsubscribed")
    group.subscribe()
    assert group.driver.poll() == [NAME, NAME]
    assert group.driver.answer(NAME, response(epoch=-1)).member_epoch == -1
    assert group.state is State.JOINING
    assert group.driver.answer(NAME, response([], 3)).member_epoch == 0
    assert group.state is State.RECONCILING


# -- not polling ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("i", -2)])
def test_a_member_that_does_not_poll_leaves_and_returns_when_polled(driver, instance, epoch):
    group = Group(driver, group_instance_id=instance, max_poll_interval=10.0)
    group.settle([T0])
    for _ in range(3):
        group.beat(wait=3)
    assert group.beat(wait=1).member_epoch == epoch
    assert group.state is State.STALE
    assert group.membership.awaits_poll
    assert group.membership.subscribed
    assert group.driver.pass_time(100) == []
    group.membership.polled(group.driver.now)
    assert group.state is State.STALE  # the partitions are still held
    group.lose()
    assert group.state is State.JOINING
    assert group.beat([T1], 9).member_epoch == 0


def test_a_stale_member_that_dropped_its_partitions_waits_for_poll(driver):
    group = Group(driver, max_poll_interval=2.0)
    group.settle([T0])
    group.driver.pass_time(2)
    group.lose()
    assert group.state is State.STALE
    group.membership.polled(group.driver.now)
    assert group.state is State.JOINING


def test_a_callback_that_takes_too_long_leaves_the_group(driver):
    group = Group(driver, max_poll_interval=2.0)
    group.subscribe()
    group.beat([T0])
    group.driver.poll()
    step = group.step(AdoptNeeded)
    group.driver.pass_time(2)
    assert group.state is State.STALE
    assert step.cancelled
    group.reply(Adopted(step.number, owned=frozenset([T0])))
    assert group.state is State.STALE
    group.lose()


# -- small things -----------------------------------------------------------------------------------------------------


def test_asking_for_a_rebalance_has_no_effect_and_says_so(group, caplog):
    group.settle()
    with caplog.at_level(logging.WARNING):
        group.membership.rejoin("I want to")
    assert "I want to" in caplog.text
    assert "only the broker" in caplog.text
    assert group.driver.poll() == []


def test_errors_of_the_coordinator_search_end_the_membership(group):
    group.settle()
    group.membership.refused(AuthorizationException("no"))
    assert group.state is State.FATAL
    assert not group.membership.active


def test_nothing_new_is_assigned_to_a_member_that_was_expelled_while_it_gave_up_partitions():
    subscription, story = SubscriptionState(), []
    subscription.subscribe(["t"])
    steps = RebalanceSteps(subscription, subscription, [], before_revoking=lambda: None)
    step = AdoptNeeded(1, "", type("Given", (), {"partitions": (T1,)})(), None)

    def revoked(_, partitions):
        story.append(("revoked", partitions))
        step.cancelled = True

    steps.set_callbacks(lambda _, p: story.append(("assigned", p)), revoked, None)
    subscription.assign_from_group([T0])
    answers = []
    assert blocking(steps.adopt(step, answers.append), Mailbox()) is None
    assert story == [("revoked", [T0])]
    assert subscription.assigned == frozenset()
    assert answers == [Adopted(1, revoked=True)]
