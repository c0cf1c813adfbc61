"""Single transitions of the classic membership, and the application's part in them."""

from __future__ import annotations

import pytest

from sparkrelay.client.broker_errors import ErrorCode
from sparkrelay.client.messages import HeartbeatResponse, JoinGroupResponse, LeaveGroupResponse, SyncGroupResponse
from sparkrelay.client.metadata import Metadata
from sparkrelay.consumer.assignor import ClusterView, MemberAssignment, MemberSubscription
from sparkrelay.consumer.classic_membership import ClassicMembership, State
from sparkrelay.consumer.events import (
    Adopted,
    AdoptNeeded,
    Assigned,
    AssignNeeded,
    Hold,
    JoinNeeded,
    Mailbox,
    Prepared,
)
from sparkrelay.consumer.flows import blocking
from sparkrelay.consumer.group_requests import MemberSettings
from sparkrelay.consumer.leading import TopicWatch
from sparkrelay.consumer.rebalance import RebalanceSteps
from sparkrelay.consumer.requests import RequestState
from sparkrelay.consumer.subscription import SubscriptionState
from sparkrelay.consumer.wire import decode_subscription, encode_assignment, encode_subscription
from sparkrelay.errors import DisconnectException, SerializationException
from sparkrelay.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
NULL_TOPICS = b"\x00\x01" + b"\xff\xff\xff\xff" + b"\xff\xff\xff\xff" + b"\x00\x00\x00\x00"


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

    def answer(self):
        _, done = self.asked.pop(0)
        done()


class Group:
    """One membership, and shortcuts through its life."""

    def __init__(self, driver, **settings):
        self.steps, self.errors, self.coordinator, self.topics = [], [], Located(), Topics()
        self.matched = []
        self.cluster = Metadata()
        self.cluster.partitions = lambda topic: (0, 1) if topic == "t" else None
        assignors = settings.pop("assignors", (("x", True),))
        self.membership = ClassicMembership(
            MemberSettings(group_id="g", assignors=assignors, **settings),
            coordinator=self.coordinator, topics=self.topics, metadata=self.cluster, tell=self.steps.append,
            fail=self.errors.append, matched=self.matched.append, state=RequestState(0.1, 1.0, jitter=0.0),
        )  # fmt: skip
        self.driver = driver(self.membership)

    @property
    def state(self):
        return self.membership.state

    def step(self, kind):
        step = self.steps.pop(0)
        assert isinstance(step, kind)
        return step

    def reply(self, answer):
        self.membership.answered(answer, self.driver.now)

    def adopted(self, step, *, revoked=False):
        """The application took what it was given."""
        self.reply(Adopted(step.number, revoked, frozenset(step.assignment.partitions)))

    def beat(self, code=0):
        """A heartbeat is answered."""
        self.membership.heartbeat_answered(HeartbeatResponse(error_code=code))

    def subscribe(self, topics=("t",)):
        self.membership.subscribe(frozenset(topics), None, self.driver.now)

    def prepare(self, owned=()):
        step = self.step(JoinNeeded)
        self.reply(Prepared(step.number, frozenset(owned), {"x": b"data"}))
        return step

    def joined(self, code=0, member="m1", leader="m0", generation=1, members=()):
        make = JoinGroupResponse.JoinGroupResponseMember
        return JoinGroupResponse(
            error_code=code, generation_id=generation, protocol_name="x", leader=leader, member_id=member,
            skip_assignment=False,
            members=[
                make(member_id=m, group_instance_id=None, metadata=encode_subscription(said))
                for m, said in dict(members).items()
            ],
        )  # fmt: skip

    def synced(self, partitions=(), code=0):
        return SyncGroupResponse(error_code=code, assignment=encode_assignment(MemberAssignment(tuple(partitions))))

    def follow(self, partitions=(T0,), owned=(), generation=1):
        """From a step of preparation to ADOPTING, as a follower."""
        self.prepare(owned)
        self.driver.poll()
        self.driver.answer("JoinGroup", self.joined(generation=generation))
        self.driver.poll()
        self.driver.answer("SyncGroup", self.synced(partitions))
        return self.step(AdoptNeeded)

    def settle(self, partitions=(T0,), owned=()):
        self.subscribe()
        self.adopted(self.follow(partitions, owned))
        assert self.state is State.STABLE


@pytest.fixture
def group(driver):
    return Group(driver)


def test_the_way_of_a_follower(group):
    group.subscribe()
    assert group.state is State.PREPARING
    assert group.driver.poll() == []  # the application prepares
    group.prepare(owned=[T1])
    assert group.driver.poll() == ["JoinGroup"]
    assert not group.membership.beats
    request = group.driver.answer("JoinGroup", group.joined(ErrorCode.MEMBER_ID_REQUIRED, member="m1"))
    assert decode_subscription(request.protocols[0].metadata) == MemberSubscription(
        frozenset({"t"}), frozenset({T1}), b"data"
    )
    assert group.driver.poll() == ["JoinGroup"]  # at once, under its name
    assert group.driver.answer("JoinGroup", group.joined()).member_id == "m1"
    assert group.driver.poll() == ["SyncGroup"]
    assert group.driver.answer("SyncGroup", group.synced([T0])).assignments == []
    step = group.step(AdoptNeeded)
    assert step.assignment.partitions == (T0,)
    assert (step.metadata.generation, step.metadata.member_id) == (1, "m1")
    assert group.membership.beats
    group.adopted(step)
    assert group.state is State.STABLE


def test_the_leader_assigns_with_fresh_metadata(group):
    group.subscribe()
    group.prepare()
    group.driver.poll()
    said = {"m1": MemberSubscription(frozenset({"t"})), "m2": MemberSubscription(frozenset({"t", "absent"}))}
    group.driver.answer("JoinGroup", group.joined(leader="m1", members=said))
    assert group.state is State.ASSIGNING
    assert group.steps == []
    assert group.topics.asked[0][0] == {"t", "absent"}
    group.topics.answer()
    step = group.step(AssignNeeded)
    assert dict(step.cluster.partitions) == {"t": (0, 1)}
    assert dict(step.members) == said
    assert group.membership.beats
    group.reply(Assigned(step.number, {"m1": MemberAssignment((T0,)), "m2": MemberAssignment((T1,), b"u")}))
    group.driver.poll()
    request = group.driver.answer("SyncGroup", group.synced([T0]))
    assert [item.member_id for item in request.assignments] == ["m1", "m2"]


def test_a_leader_whose_assignor_fails_leaves_and_joins_when_polled(group):
    group.subscribe()
    group.prepare()
    group.driver.poll()
    group.driver.answer("JoinGroup", group.joined(leader="m1", members={"m1": MemberSubscription(frozenset({"t"}))}))
    group.topics.answer()
    group.reply(Assigned(group.step(AssignNeeded).number, error=ValueError("bad")))
    assert group.state is State.STALE
    assert group.driver.poll() == ["LeaveGroup"]
    group.driver.answer("LeaveGroup", LeaveGroupResponse(error_code=0))
    assert group.driver.pass_time(10) == []
    group.membership.polled(group.driver.now)
    assert group.step(JoinNeeded).hold is Hold.LOSE


def test_a_heartbeats_news_begin_a_rebalance_and_cooperative_members_keep_what_they_have(group):
    group.settle()
    group.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert group.step(JoinNeeded).hold is Hold.KEEP
    assert group.membership.beats  # while the application prepares
    assert group.membership.metadata.generation == 1


def test_eager_members_revoke_everything_first(driver):
    group = Group(driver, assignors=(("x", False), ("y", True)))
    group.settle()
    group.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert group.step(JoinNeeded).hold is Hold.REVOKE


def test_whoever_gave_something_up_joins_again(group):
    group.subscribe()
    group.adopted(group.follow([T0], owned=[T0, T1]), revoked=True)
    group.driver.poll()
    assert group.step(JoinNeeded).hold is Hold.KEEP


def test_whoever_was_interrupted_before_it_took_its_partitions_joins_again(group):
    """Otherwise nobody would read them: the group thinks that they are ours."""
    group.subscribe()
    group.reply(Adopted(group.follow([T0, T1], owned=[T0]).number, owned=frozenset({T0})))
    assert group.state is State.STABLE
    group.driver.poll()
    assert group.step(JoinNeeded).hold is Hold.KEEP


@pytest.mark.parametrize(("code", "kept"), [(ErrorCode.UNKNOWN_MEMBER_ID, ""), (ErrorCode.ILLEGAL_GENERATION, "m1")])
def test_an_expelled_member_loses_everything_and_joins_anew(group, code, kept):
    group.settle()
    group.beat(code)
    assert group.membership.metadata.generation == -1
    assert group.membership.metadata.member_id == kept
    assert group.step(JoinNeeded).hold is Hold.LOSE


def test_expelled_while_preparing_loses_what_the_application_still_holds(group):
    group.settle()
    group.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    step = group.step(JoinNeeded)
    group.beat(ErrorCode.UNKNOWN_MEMBER_ID)
    group.reply(Prepared(step.number, frozenset({T0})))
    assert group.step(JoinNeeded).hold is Hold.LOSE


def test_the_log_tells_a_silent_member_from_one_that_kept_a_rebalance_waiting(group, caplog):
    group.settle()
    group.beat(ErrorCode.UNKNOWN_MEMBER_ID)
    assert "it was silent for session.timeout.ms=" in caplog.text
    group.settle()
    group.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    caplog.clear()
    group.beat(ErrorCode.UNKNOWN_MEMBER_ID)
    assert "kept a rebalance waiting for max.poll.interval.ms=" in caplog.text
    assert "session.timeout.ms" not in caplog.text


def test_answers_to_heartbeats_of_an_earlier_life_mean_nothing_though_the_generation_is_the_same(driver):
    """A static member that joins a stable group again gets its old generation."""
    group = Group(driver, group_instance_id="static")
    group.settle()
    first = group.membership.life
    group.beat(ErrorCode.UNKNOWN_MEMBER_ID)
    assert group.membership.life != first
    outside = group.membership.life
    group.adopted(group.follow())
    assert group.membership.metadata.generation == 1
    assert group.membership.life not in {first, outside}


def joining_again(group):
    group.settle()
    group.membership.rejoin("asked")
    group.driver.poll()
    group.prepare(owned=[T0])


@pytest.mark.parametrize("code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID])
def test_what_was_sent_in_the_old_generation_does_not_expel_a_member_whose_join_is_under_way(group, code):
    """As a commit: the broker has begun the new generation, and its answer to our join comes next."""
    joining_again(group)
    group.driver.poll()
    group.membership.fenced(code)
    assert group.membership.metadata.generation == 1
    assert not group.steps
    group.driver.answer("JoinGroup", group.joined(generation=2))
    assert group.state is State.SYNCING
    assert group.membership.metadata.generation == 2


def test_expelled_before_joining_again_loses_everything(group):
    joining_again(group)
    group.coordinator.node = None
    group.driver.poll()
    group.membership.fenced(ErrorCode.UNKNOWN_MEMBER_ID)
    assert group.step(JoinNeeded).hold is Hold.LOSE
    assert group.membership.metadata.member_id == ""


def test_expelled_in_a_callback_clears_the_generation_and_joins_anew_afterwards(group):
    """KAFKA-16933: fenced in a callback."""
    group.subscribe()
    step = group.follow()
    group.beat(ErrorCode.UNKNOWN_MEMBER_ID)
    assert group.membership.metadata.generation == -1
    assert step.cancelled  # the callback runs to its end, but what it was told of is not taken any more
    assert group.step(JoinNeeded).hold is Hold.LOSE
    group.adopted(step)
    assert group.state is State.PREPARING


def test_delayed_answers_are_ignored_after_the_member_went_on(group):
    """KAFKA-16375: in all three stages."""
    group.settle()
    group.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    old = group.step(JoinNeeded)
    group.membership.polled(group.driver.now)
    group.driver.pass_time(301)  # expelled for not polling, then back
    assert old.cancelled
    group.membership.polled(group.driver.now)
    fresh = group.step(JoinNeeded)
    for late in (Prepared(old.number), Assigned(old.number), Adopted(old.number)):
        group.reply(late)
        assert group.state is State.PREPARING
    group.reply(Prepared(fresh.number))
    assert group.state is State.JOINING


def test_an_answer_to_an_earlier_attempt_is_ignored(group, make_call):
    group.subscribe()
    group.prepare()
    group.driver.poll()
    unsent = group.driver.find("JoinGroup")
    group.membership._name("m1")
    call = make_call()
    group.membership.leave(call, "closing")
    unsent.handle(group.joined(), None, 0.0)
    assert group.state is State.LEAVING
    group.driver.waiting.clear()
    assert group.driver.poll() == ["LeaveGroup"]
    group.driver.answer("LeaveGroup", LeaveGroupResponse(error_code=0))
    assert call.done
    assert group.state is State.LEAVING
    group.driver.poll()
    assert group.state is State.UNSUBSCRIBED


def test_leaving_before_the_member_has_a_name_waits_for_it(group, make_call):
    group.subscribe()
    group.prepare()
    group.driver.poll()
    call = make_call()
    group.membership.leave(call, "closing")
    assert group.driver.poll() == []
    group.driver.answer("JoinGroup", group.joined(ErrorCode.MEMBER_ID_REQUIRED, member="m7"))
    assert group.driver.poll() == ["LeaveGroup"]
    assert group.driver.find("LeaveGroup").request.members[0].member_id == "m7"


def test_subscribing_while_the_farewell_is_under_way_joins_afterwards(group, make_call):
    """The application hears of the end of unsubscribe() before the membership's next turn."""
    group.settle()
    call = make_call()
    group.membership.leave(call, "unsubscribing")
    assert group.driver.poll() == ["LeaveGroup"]
    group.driver.answer("LeaveGroup", LeaveGroupResponse(error_code=0))
    assert call.done
    group.subscribe()
    group.driver.poll()
    assert group.state is State.PREPARING
    assert group.step(JoinNeeded).hold is Hold.KEEP


def test_leaving_without_a_coordinator_does_not_look_for_one(group, make_call):
    """KAFKA-19357, KAFKA-18569."""
    group.settle()
    group.coordinator.node = None
    call = make_call()
    group.membership.leave(call, "closing")
    assert group.driver.poll() == []
    assert call.done


def test_leaving_is_done_though_the_broker_does_not_answer(group, make_call):
    group.settle()
    call = make_call()
    group.membership.leave(call, "closing")
    group.driver.poll()
    group.driver.answer("LeaveGroup", error=DisconnectException("gone"))
    assert call.result() is None


def test_static_members_do_not_say_good_bye(driver, make_call):
    group = Group(driver, group_instance_id="static")
    group.settle()
    call = make_call()
    group.membership.leave(call, "closing")
    assert group.driver.poll() == []
    assert call.done


def test_static_members_do_not_wait_for_a_name_when_they_leave(driver, make_call):
    """There is nothing to say to the broker, so nothing to wait for."""
    group = Group(driver, group_instance_id="static")
    group.subscribe()
    group.prepare()
    assert group.driver.poll() == ["JoinGroup"]
    call = make_call()
    group.membership.leave(call, "closing")
    assert group.driver.poll() == []
    assert call.done


def test_a_member_that_does_not_poll_leaves(group):
    group.settle()
    assert group.driver.pass_time(299) == []
    assert group.driver.pass_time(1) == ["LeaveGroup"]
    assert group.state is State.STALE
    assert not group.membership.beats


@pytest.mark.parametrize(
    "code", [ErrorCode.INVALID_SESSION_TIMEOUT, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_MAX_SIZE_REACHED]
)
def test_what_joining_again_does_not_change_is_final(group, code):
    group.subscribe()
    group.prepare()
    group.driver.poll()
    group.driver.answer("JoinGroup", group.joined(code))
    assert group.state is State.FATAL
    assert ErrorCode(code).name in str(group.errors[0])
    group.membership.polled(0.0)
    assert group.driver.pass_time(10) == []


def test_who_gives_up_leaves_so_that_others_need_not_wait_for_the_end_of_the_session(group, make_call):
    group.settle()
    group.beat(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert group.state is State.FATAL
    assert group.driver.poll() == ["LeaveGroup"]
    request = group.driver.answer("LeaveGroup", LeaveGroupResponse(error_code=0))
    assert request.members[0].member_id == "m1"
    assert "GROUP_AUTHORIZATION_FAILED" in request.members[0].reason
    call = make_call()
    group.membership.leave(call, "closing")
    assert group.driver.poll() == []
    assert call.done


def test_who_was_given_an_assignor_that_it_does_not_have_leaves(group):
    group.subscribe()
    group.prepare()
    group.driver.poll()
    answer = group.joined(member="m7")
    answer.protocol_name = "stranger"
    group.driver.answer("JoinGroup", answer)
    assert group.driver.poll() == ["LeaveGroup"]
    assert group.driver.find("LeaveGroup").request.members[0].member_id == "m7"


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.REBALANCE_IN_PROGRESS]
)
def test_joining_is_repeated_after_a_pause(group, code):
    group.subscribe()
    group.prepare()
    group.driver.poll()
    group.driver.answer("JoinGroup", group.joined(code))
    assert group.driver.poll() == []
    assert group.driver.pass_time(0.1) == ["JoinGroup"]
    assert group.coordinator.losses == (code == ErrorCode.NOT_COORDINATOR)


def test_an_assignor_that_goes_on_failing_is_tried_ever_more_slowly(group):
    """Each try costs the group a rebalance."""
    said = {"m1": MemberSubscription(frozenset({"t"}))}
    group.subscribe()
    pauses = []
    for _ in range(3):
        group.prepare()
        began = group.driver.now
        while group.driver.poll() != ["JoinGroup"]:
            group.driver.now += 0.05
        pauses.append(round(group.driver.now - began, 2))
        group.driver.answer("JoinGroup", group.joined(ErrorCode.MEMBER_ID_REQUIRED))
        assert group.driver.poll() == ["JoinGroup"]
        group.driver.answer("JoinGroup", group.joined(leader="m1", members=said))
        group.topics.answer()
        group.reply(Assigned(group.step(AssignNeeded).number, error=ValueError("bad")))
        assert group.driver.poll() == ["LeaveGroup"]
        group.membership.polled(group.driver.now)
    assert pauses[0] == 0
    assert 0 < pauses[1] < pauses[2]


def test_subscriptions_that_cannot_be_read_are_not_asked_for_at_once_again(group):
    group.subscribe()
    group.prepare()
    group.driver.pass_time(10)  # long after the application polled
    answer = group.joined(leader="m1", members={"m1": MemberSubscription(frozenset({"t"}))})
    answer.members[0].metadata = b""
    group.driver.answer("JoinGroup", answer)
    group.membership.polled(group.driver.now)
    group.prepare()
    assert group.driver.poll() == ["LeaveGroup"]
    assert group.driver.pass_time(0.05) == []
    assert group.driver.pass_time(0.05) == ["JoinGroup"]


def test_a_rebalance_that_begins_anew_while_syncing(group):
    group.settle()
    group.membership.rejoin("asked")
    group.driver.poll()
    group.prepare([T0])
    group.driver.poll()
    group.driver.answer("JoinGroup", group.joined(generation=2))
    group.driver.poll()
    group.driver.answer("SyncGroup", group.synced(code=ErrorCode.REBALANCE_IN_PROGRESS))
    assert group.step(JoinNeeded).hold is Hold.KEEP
    assert group.membership.metadata.generation == 2


def test_a_request_during_a_rebalance_is_done_after_it(group):
    group.subscribe()
    group.prepare()
    group.driver.poll()
    group.membership.rejoin("a warm-up is warm")
    group.driver.answer("JoinGroup", group.joined())
    group.driver.poll()
    group.driver.answer("SyncGroup", group.synced([T0]))
    group.adopted(group.step(AdoptNeeded))
    group.driver.poll()
    group.prepare([T0])
    group.driver.poll()
    assert group.driver.find("JoinGroup").request.reason == "a warm-up is warm"


def test_a_subscription_that_changes_before_joining_goes_along_and_is_no_reason_for_another_rebalance(group):
    group.subscribe(["t"])
    first = group.step(JoinNeeded)
    group.subscribe(["t", "u"])
    assert first.cancelled
    group.reply(Prepared(first.number, frozenset(), {"x": b"for t only"}))
    assert group.state is State.PREPARING
    assert group.steps[0].topics == {"t", "u"}
    group.adopted(group.follow())
    assert group.driver.poll() == []
    assert group.state is State.STABLE
    assert group.steps == []


def test_a_changed_subscription_keeps_what_is_known_of_the_rebalance_that_begins(group):
    group.settle()
    group.beat(ErrorCode.UNKNOWN_MEMBER_ID)
    group.membership.rejoin("asked")
    group.subscribe(["u"])
    group.subscribe(["u"])
    assert [step.cancelled for step in group.steps] == [True, False]
    group.steps.pop(0)
    assert group.steps[0].hold is Hold.LOSE
    group.adopted(group.follow())
    group.driver.poll()
    group.prepare([T0])
    group.driver.poll()
    assert group.driver.find("JoinGroup").request.reason == "asked"


def test_topics_no_longer_wanted_are_named(group):
    group.subscribe(["t", "old"])
    group.adopted(group.follow())
    group.subscribe(["t"])
    group.driver.poll()
    assert group.step(JoinNeeded).dropped == {"old"}


@pytest.mark.parametrize("where", ["join", "sync", "heartbeat"])
def test_a_name_that_another_took_over_is_fatal_and_named(driver, where):
    group = Group(driver, group_instance_id="me")
    group.subscribe()
    group.prepare()
    group.driver.poll()
    if where == "join":
        group.driver.answer("JoinGroup", group.joined(code=ErrorCode.FENCED_INSTANCE_ID))
    else:
        group.driver.answer("JoinGroup", group.joined())
        group.driver.poll()
        code = ErrorCode.FENCED_INSTANCE_ID if where == "sync" else 0
        group.driver.answer("SyncGroup", group.synced([T0], code))
        if where == "heartbeat":
            group.beat(ErrorCode.FENCED_INSTANCE_ID)
    assert group.state is State.FATAL
    assert "group.instance.id='me'" in str(group.errors[0])


@pytest.mark.parametrize("leads", [False, True])
def test_data_of_members_that_cannot_be_read_end_the_rebalance_with_a_named_error(group, leads):
    """Null arrays: what some clients write for nothing at all."""
    group.subscribe()
    group.prepare()
    group.driver.poll()
    answer = group.joined(leader="m1", members={"m1": MemberSubscription(frozenset({"t"}))} if leads else {})
    if leads:
        answer.members[0].metadata = NULL_TOPICS
        group.driver.answer("JoinGroup", answer)
        assert group.state is State.STALE
    else:
        group.driver.answer("JoinGroup", group.joined())
        group.driver.poll()
        group.driver.answer("SyncGroup", SyncGroupResponse(error_code=0, assignment=NULL_TOPICS))
        assert group.state is State.FATAL
    assert isinstance(group.errors[0], SerializationException)


def test_an_assignor_that_was_not_offered_is_refused(group):
    group.subscribe()
    group.prepare()
    group.driver.poll()
    answer = group.joined()
    answer.protocol_name = "stranger"
    group.driver.answer("JoinGroup", answer)
    assert group.state is State.FATAL
    assert "partition.assignment.strategy=x" in str(group.errors[0])


# -- the leader's topics -----------------------------------------------------------------------------------------------


def test_the_leader_asks_for_a_rebalance_when_topics_change_but_not_for_those_it_made(cluster, metadata_message):
    metadata, topics = cluster({"t": 1}), Topics()
    watch = TopicWatch(metadata, topics)
    views = []
    watch.view(frozenset({"t", "made", "absent"}), views.append)
    topics.answer()
    assert dict(views[0].partitions) == {"t": (0,)}
    metadata.update(metadata_message({"made": 4}), requested={"made"})
    assert watch.changed() == []
    watch.assigned({"t", "made"})
    topics.answer()
    assert watch.changed() == []
    metadata.update(metadata_message({"t": 2}), requested={"t"})
    assert watch.changed() == ["t"]
    assert watch.changed() == []
    metadata.update(metadata_message({"absent": 1}), requested={"absent"})
    assert watch.changed() == ["absent"]
    watch.stop()
    metadata.update(metadata_message({"t": 3}), requested={"t"})
    assert watch.changed() == []


def test_racks_are_shown_to_assignors_and_watched_by_leaders_that_have_one(cluster, metadata_message):
    def response(racks):
        message = metadata_message({"t": 2}, brokers=(1, 2))
        for broker, rack in zip(message.brokers, racks, strict=True):
            broker.rack = rack
        for partition, node in zip(message.topics[0].partitions, (1, 2), strict=True):
            partition.replica_nodes = [node]
        return message

    metadata, topics = cluster({}), Topics()
    metadata.update(response(["a", None]), requested=None)
    watches = [TopicWatch(metadata, topics, by_rack=by_rack) for by_rack in (False, True)]
    views = []
    for watch in watches:
        watch.view(frozenset({"t"}), views.append)
        topics.answer()
        watch.assigned({"t"})
        topics.answer()
    assert dict(views[0].racks) == {T0: frozenset({"a"}), T1: frozenset()}
    metadata.update(response(["a", "b"]), requested={"t"})
    assert [watch.changed() for watch in watches] == [[], ["t"]]


# -- the application's part --------------------------------------------------------------------------------------------


def run(flow):
    return blocking(flow, Mailbox())


class Plain:
    name, supports_cooperative = "x", True

    def __init__(self, story):
        self.story = story

    def subscription_user_data(self, topics):
        self.story.append("user data")
        return b"u"

    def on_assignment(self, assignment, metadata):
        self.story.append("on_assignment")

    def assign(self, cluster, members):
        return {"m1": MemberAssignment((T0,)), "m2": MemberAssignment()}


class App:
    def __init__(self, *, fail=()):
        self.story, self.subscription = [], SubscriptionState()
        self.steps = RebalanceSteps(
            self, self.subscription, [Plain(self.story)], before_revoking=lambda: self.story.append("commit")
        )

        def note(kind):
            def callback(consumer, partitions):
                self.story.append((kind, *partitions))
                if kind in fail:
                    raise ValueError(f"in {kind}")

            return callback

        self.steps.set_callbacks(note("assigned"), note("revoked"), note("lost"))
        self.subscription.assign_from_group([T0])
        self.subscription.release()
        self.answers = []

    def adopt(self, *partitions):
        step = AdoptNeeded(1, "x", MemberAssignment(partitions), None)
        return run(self.steps.adopt(step, self.answers.append))


def test_the_order_of_a_rebalance():
    app = App()
    assert app.adopt(T1) is None
    assert app.story == ["on_assignment", "commit", ("revoked", T0), ("assigned", T1)]
    assert app.answers == [Adopted(1, revoked=True, owned=frozenset({T1}))]
    assert app.subscription.assigned == {T1}


def test_on_assigned_is_called_also_when_nothing_is_new():
    app = App()
    app.adopt(T0)
    assert app.story == ["on_assignment", ("assigned",)]
    assert app.answers == [Adopted(1, revoked=False, owned=frozenset({T0}))]


def test_an_error_in_a_callback_still_answers_and_runs_the_rest():
    """KAFKA-18160, KAFKA-16933."""
    app = App(fail=("revoked", "assigned"))
    error = app.adopt(T1)
    assert str(error) == "in revoked"
    assert ("assigned", T1) in app.story
    assert app.answers == [Adopted(1, revoked=True, owned=frozenset({T1}))]
    assert app.subscription.assigned == {T1}


def test_an_interrupt_in_a_callback_still_answers():
    app = App()

    def interrupted(consumer, partitions):
        raise KeyboardInterrupt

    app.steps.set_callbacks(None, interrupted, None)
    assert isinstance(app.adopt(T1), KeyboardInterrupt)
    assert app.answers == [Adopted(1, revoked=True, owned=frozenset({T1}))]
    assert app.subscription.assigned == {T1}


def test_new_partitions_are_not_fetched_before_the_callback_returned():
    app, seen = App(), []
    app.subscription.seek(T0, 0)

    def assigned(consumer, partitions):
        app.subscription.seek(T1, 0)
        seen.append(dict(app.subscription.fetchable()))

    app.steps.set_callbacks(assigned, None, None)
    app.adopt(T0, T1)
    assert seen == [{T0: 0}]
    assert app.subscription.fetchable() == {T0: 0, T1: 0}


def test_preparing_gives_up_as_told():
    for hold, dropped, story, owned in (
        (Hold.KEEP, (), ["user data"], {T0}),
        (Hold.KEEP, ("t",), ["commit", ("revoked", T0), "user data"], set()),
        (Hold.REVOKE, (), ["commit", ("revoked", T0), "user data"], set()),
        (Hold.LOSE, (), [("lost", T0), "user data"], set()),
    ):
        app = App()
        step = JoinNeeded(7, hold, frozenset({"t"}), frozenset(dropped))
        assert run(app.steps.prepare(step, app.answers.append)) is None
        assert app.story == story
        assert app.answers == [Prepared(7, frozenset(owned), {"x": b"u"})]


def test_lost_partitions_go_to_on_revoked_without_on_lost():
    app = App()
    app.steps.set_callbacks(None, lambda _, p: app.story.append(("revoked", *p)), None)
    run(app.steps.prepare(JoinNeeded(7, Hold.LOSE, frozenset(), frozenset()), app.answers.append))
    assert app.story[0] == ("revoked", T0)


def test_an_assignment_that_takes_and_gives_at_once_is_refused():
    app = App()
    members = {"m1": MemberSubscription(frozenset({"t"})), "m2": MemberSubscription(frozenset({"t"}), frozenset({T0}))}
    error = app.steps.assign(AssignNeeded(3, "x", ClusterView({"t": (0, 1)}), members), app.answers.append)
    assert "gives t-0 to m1 while m2 still holds it" in str(error)
    assert app.answers[0].error is error
