"""A member's part in its group's rebalances: what it says, what it takes, and what it answers as leader.

The broker is played: partition counts and changelog ends are given. Decisions are tested in tests/unit/assignment.
"""

from __future__ import annotations

import itertools
import threading
import time
import types
import uuid

import pytest
from tests.doubles.assignors import Answers
from tests.waiting import LONG

from sparkrelay.assignment import (
    AssignmentConfigs,
    HighAvailabilityTaskAssignor,
    StickyTaskAssignor,
    TaskAssignment,
    TaskAssignor,
    load_assignor,
)
from sparkrelay.client.group_requests import GroupMetadata
from sparkrelay.config import StreamsConfig
from sparkrelay.consumer.base.assignor import ClusterView, MemberAssignment, MemberSubscription
from sparkrelay.errors import (
    IncompatibleTopologyException,
    StreamsException,
    TaskAssignmentException,
    TimeoutException,
    UnknownTopicException,
    WakeupException,
)
from sparkrelay.protocol import (
    LATEST_OFFSET,
    LATEST_SUPPORTED_VERSION,
    NO_REBALANCE_SCHEDULED,
    AssignmentInfo,
    ErrorCode,
    HostInfo,
    SubscriptionInfo,
)
from sparkrelay.records.formats import Json, String
from sparkrelay.runtime.group.assignment_log import Notice
from sparkrelay.runtime.group.group_assignor import StreamsGroupAssignor, encode_answer
from sparkrelay.runtime.topics.layout import lay_out
from sparkrelay.runtime.topics.topic_names import TopicNames
from sparkrelay.topology import StreamsBuilder
from sparkrelay.types import ProcessId, TaskId, TopicPartition

pytestmark = pytest.mark.usefixtures("spark")

GROUP = GroupMetadata("app", 1, "me")


def pipeline(topic="flights", *, logged=True):
    builder = StreamsBuilder()
    rows = builder.stream(topic, key=String("carrier"), value=Json("carrier string, origin string"))
    rows.groupBy("carrier").count(name="by-carrier", logged=logged).to("carriers", value=Json())
    return builder.build()


class Broker:
    """The topics of an application as its leader asks for them."""

    def __init__(self, topology, *, partitions=2, error=None, ends_error=None, racks_error=None):
        self.topology, self.partitions, self.error, self.ends_error = topology, partitions, error, ends_error
        self.racks_error = racks_error
        self.asked = set()
        self.questions = []

    def prepare(self):
        if self.error:
            raise self.error
        return lay_out(self.topology, TopicNames("app"), {"flights": self.partitions, "carriers": 1})

    def racks(self, topics):
        assert topics == {"flights", "app-by-carrier-changelog"}
        self.questions.append("racks")
        if self.racks_error:
            raise self.racks_error
        return {TopicPartition("flights", 0): frozenset(["near"])}

    def changelog_ends(self, partitions, *, timeout):
        assert timeout <= 10, "the whole group waits"
        self.questions.append("ends")
        self.asked |= set(partitions)
        if self.ends_error:
            raise self.ends_error
        return dict.fromkeys(partitions, 100)


@pytest.fixture
def made():
    def make(number=1, *, sums=None, topology=None, assignor=None, settings=None, **broker):
        config = StreamsConfig.from_dict(
            {"application.id": "app", "bootstrap.servers": "localhost:1"} | (settings or {})
        )
        topology = topology or pipeline()
        hooks = {name: broker.pop(name) for name in ("page", "on_decision") if name in broker}
        topics = Broker(topology, **broker)
        taken = []
        member = StreamsGroupAssignor(
            config=config,
            topology=topology,
            process_id=ProcessId(uuid.UUID(int=number)),
            topics=topics,
            assignor=assignor or HighAvailabilityTaskAssignor(),
            load=lambda name: load_assignor(name, {}),
            offset_sums=lambda: sums or {},
            on_info=lambda info, metadata: taken.append((info, metadata)),
            **hooks,
        )
        return types.SimpleNamespace(assignor=member, topics=topics, taken=taken)

    return make


def test_members_learn_where_pages_are_and_the_leader_keeps_its_reasons(made):
    decided = []
    leader, other = made(1, page="here:9404", on_decision=lambda why, lines: decided.append((why, lines))), made(2)
    answers = lead(leader, {"m-1": leader, "m-2": other})
    other.assignor.on_assignment(answers["m-2"][0], GroupMetadata("app", 1, "m-2", None))
    assert other.assignor.notice.pages == {"00000000": "here:9404"}
    ((why, lines),) = decided
    assert why == other.assignor.notice.why
    assert lines[0] == "rebalance (members: 2, processes: 2)"


def says(member, **more):
    return MemberSubscription(
        topics=frozenset(["flights"]), user_data=member.assignor.subscription_user_data(frozenset(["flights"])), **more
    )


def lead(leader, members):
    answers = leader.assignor.assign(ClusterView({}), {name: says(member) for name, member in members.items()})
    return {name: (answer, AssignmentInfo.decode(answer.user_data)) for name, answer in answers.items()}


# What a member says


def test_only_cooperative_rebalancing_is_spoken(made):
    assert made().assignor.supports_cooperative is True
    assert made().assignor.name == "stream"


def test_a_member_says_who_it_is_and_what_it_has(made):
    sums = {TaskId(0, 0): LATEST_OFFSET, TaskId(0, 1): 40}
    settings = {"client.tag.zone": "a", "application.server": "one:80"}
    member = made(7, sums=sums, settings=settings)
    said = SubscriptionInfo.decode(member.assignor.subscription_user_data(frozenset()))
    assert (said.version, said.latest_supported_version) == (LATEST_SUPPORTED_VERSION, LATEST_SUPPORTED_VERSION)
    assert said.process_id.id.int == 7
    assert (said.task_offset_sums, said.user_end_point, said.client_tags["zone"]) == (sums, "one:80", "a")


def test_each_time_it_says_something_new_and_the_number_wraps(made):
    member = made()
    said = [
        SubscriptionInfo.decode(member.assignor.subscription_user_data(frozenset())).unique_field for _ in range(130)
    ]
    assert all(one != other for one, other in itertools.pairwise(said))
    assert said[0] == said[128] == 1
    assert 0 <= min(said) <= max(said) == 127


# What it takes


def test_an_assignment_is_handed_on(made):
    member, info = made(), AssignmentInfo(active_tasks=[TaskId(0, 1)], standby_tasks={TaskId(0, 0): ()})
    member.assignor.on_assignment(MemberAssignment(user_data=encode_answer(info, Notice())), GROUP)
    assert member.taken == [(info, GROUP)]


@pytest.mark.parametrize(
    ("code", "error", "message"),
    [
        (ErrorCode.ASSIGNMENT_ERROR, TaskAssignmentException, "ASSIGNMENT_ERROR"),
        (ErrorCode.INCOMPLETE_SOURCE_TOPIC_METADATA, TaskAssignmentException, "INCOMPLETE_SOURCE_TOPIC_METADATA"),
        (ErrorCode.SHUTDOWN_REQUESTED, StreamsException, "asked the whole application to shut down"),
    ],
)
def test_an_error_of_the_leader_is_raised_and_nothing_handed_on(made, code, error, message):
    member = made()
    with pytest.raises(error, match=message):
        member.assignor.on_assignment(
            MemberAssignment(user_data=encode_answer(AssignmentInfo(err_code=code), Notice())), GROUP
        )
    assert member.taken == []


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.ASSIGNMENT_ERROR])
def test_a_leader_that_is_another_program_is_named(made, code):
    """Kafka Streams understands what we say, and gives us tasks of another topology."""
    info = AssignmentInfo(err_code=code, active_tasks=[TaskId(0, 1)])
    member = made()
    with pytest.raises(StreamsException, match="the leader of group 'app' is not an instance of SparkRelay") as error:
        member.assignor.on_assignment(MemberAssignment(user_data=info.encode()), GROUP)
    assert "--describe --members --group app" in str(error.value)
    assert member.taken == []


STRANGERS = {
    "unreadable": b"\xff\xff",
    "nothing": b"",
    "impossible": SubscriptionInfo(process_id=ProcessId(uuid.UUID(int=9))).encode()[:8] + b"\xff" * 30,
    "Kafka Streams": SubscriptionInfo(
        process_id=ProcessId(uuid.UUID(int=9)), user_end_point="java:80", client_tags={"zone": "a"}
    ).encode(),
    "wants all to end": SubscriptionInfo(
        process_id=ProcessId(uuid.UUID(int=9)), error_code=ErrorCode.SHUTDOWN_REQUESTED
    ).encode(),
}


@pytest.mark.parametrize("stranger", STRANGERS)
def test_a_member_that_is_another_program_is_refused_alone(made, caplog, stranger):
    """It is given nothing and sent nothing; what it still owns is nobody else's before it has let go of it."""
    one = made(1, page="http://one:1")
    owned = frozenset([TopicPartition("flights", 0)])
    said = MemberSubscription(
        topics=frozenset(["flights"]), user_data=STRANGERS[stranger], owned_partitions=tuple(owned)
    )
    answers = one.assignor.assign(ClusterView({}), {"one": says(one), "java-1": said})
    given = {name: AssignmentInfo.decode(answer.user_data) for name, answer in answers.items()}
    assert (given["java-1"].err_code, given["java-1"].active_tasks) == (ErrorCode.ASSIGNMENT_ERROR, ())
    assert answers["java-1"].user_data == given["java-1"].encode(), "nothing behind it"
    assert answers["java-1"].partitions == ()
    assert given["one"].err_code == ErrorCode.NONE
    assert given["one"].active_tasks == (TaskId(0, 1),)
    assert given["one"].next_rebalance_ms == 0
    assert "java:80" not in str(given["one"].partitions_by_host)
    assert "member java-1 is not an instance of SparkRelay and gets no tasks" in caplog.text
    one.assignor.on_assignment(answers["one"], GROUP)
    assert one.assignor.notice.processes == ("00000000",)


# What it answers as leader


def take(member, answer, generation=1):
    member.assignor.on_assignment(answer, GroupMetadata("app", generation, "me"))
    return member.assignor.notice


def test_every_member_learns_who_is_there_and_why(made):
    one, two = made(1), made(2)
    (notice,) = (take(one, answer) for answer, _ in lead(one, {"one": one}).values())
    assert notice == Notice(("00000000",), "the group begins")
    one, two = made(0x1 << 96), made(0x2 << 96)
    take(one, lead(one, {"one": one})["one"][0])
    answers = lead(one, {"one": one, "two": two})
    assert [take(member, answers[name][0]) for name, member in (("one", one), ("two", two))] == [
        Notice(("00000001", "00000002"), "00000002 joined")
    ] * 2
    # The leader leaves; the next one knows from the notice who was there.
    notice = take(two, lead(two, {"two": two})["two"][0])
    assert notice == Notice(("00000002",), "00000001 left")
    # The same process under another name in the group.
    assert take(two, lead(two, {"again": two})["again"][0]).why == "00000002 rejoined"


def test_every_member_learns_whose_copy_is_cold_and_waited_for(made):
    running = {TaskId(0, 0): LATEST_OFFSET, TaskId(0, 1): LATEST_OFFSET}
    settings = {"acceptable.recovery.lag": 50}
    owner = made(1, sums=running, settings=settings)
    for copied, warming in ((0, 1), (49, 1), (50, 0)):
        # The changelogs end at 100.
        other = made(2, sums={TaskId(0, 0): copied, TaskId(0, 1): copied}, settings=settings)
        answers = lead(owner, {"one": owner, "two": other})
        for name, member in (("one", owner), ("two", other)):
            notice = take(member, answers[name][0])
            # It is the newcomer's copy that is waited for.
            assert [len(notice.warms(one.assignor._process_id)) for one in (owner, other)] == [0, warming]


def test_a_standby_that_changes_roles_with_the_owner_is_waited_for_too(made):
    """The leader's ends are newer than what the standby's own process goes by: it may hold its copy to be warm."""
    settings = {"acceptable.recovery.lag": 50, "num.standby.replicas": 1}
    owner = made(1, sums={TaskId(0, 0): LATEST_OFFSET, TaskId(0, 1): LATEST_OFFSET}, settings=settings)
    for copied, awaited in ((49, 2), (50, 0)):
        other = made(2, sums=dict.fromkeys((TaskId(0, 0), TaskId(0, 1)), copied), settings=settings)
        answers = lead(owner, {"one": owner, "two": other})
        notice = take(other, answers["two"][0])
        assert len(notice.warms(other.assignor._process_id)) == awaited


def test_the_reason_of_a_request_is_reported_once(made):
    one = made(1)
    take(one, lead(one, {"one": one})["one"][0])
    one.assignor.asked = "copies of 0_1 are warm"
    assert take(one, lead(one, {"one": one})["one"][0]).why == "copies of 0_1 are warm"
    assert take(one, lead(one, {"one": one})["one"][0]).why == "a member asked for it"


def test_the_leader_logs_one_line_and_each_decision_at_debug(made, caplog):
    caplog.set_level("DEBUG", logger="sparkrelay.runtime.group.group_assignor")
    one = made(1)
    lead(one, {"one": one})
    notice = [record.getMessage() for record in caplog.records if record.levelname == "INFO"]
    assert notice == ["leads the rebalance (members: 1), because the group begins: starts 0_0, 0_1"]
    assert any("task 0_0 starts on" in record.getMessage() for record in caplog.records)


def test_every_task_is_given_with_its_partitions(made):
    members = {"one": made(1), "two": made(2)}
    answers = lead(members["one"], members)
    tasks = sorted(task for _answer, info in answers.values() for task in info.active_tasks)
    assert tasks == [TaskId(0, 0), TaskId(0, 1)]
    assert sorted(partition for answer, _ in answers.values() for partition in map(str, answer.partitions)) == [
        "flights-0",
        "flights-1",
    ]
    assert members["one"].assignor.failure is None
    assert {str(partition) for partition in members["one"].topics.asked} == {
        "app-by-carrier-changelog-0",
        "app-by-carrier-changelog-1",
    }


def test_more_partitions_are_more_tasks(made):
    leader = made(1, partitions=5)
    [(_answer, info)] = lead(leader, {"one": leader}).values()
    assert len(info.active_tasks) == 5


@pytest.mark.parametrize("settings", [{}, {"num.standby.replicas": 1}])
def test_copies_come_as_configured(made, settings):
    members = {"one": made(1, settings=settings), "two": made(2, settings=settings)}
    copies = [task for _answer, info in lead(members["one"], members).values() for task in info.standby_tasks]
    assert len(copies) == (2 if settings else 0)


def test_a_topic_that_is_missing_is_reported_to_all_and_raised_here(made):
    leader = made(1, topology=pipeline("nowhere"))
    answers = lead(leader, {"one": leader, "two": made(2, topology=pipeline("nowhere"))})
    assert {info.err_code for _answer, info in answers.values()} == {ErrorCode.INCOMPLETE_SOURCE_TOPIC_METADATA}
    assert "'nowhere' does not exist" in str(leader.assignor.failure)
    with pytest.raises(TaskAssignmentException, match="'nowhere' does not exist"):
        made(2).assignor.on_assignment(answers["two"][0], GROUP)


def test_a_sink_topic_that_is_missing_is_an_error_of_another_code(made):
    leader = made(1, error=UnknownTopicException("topic 'out' of to() does not exist"))
    [(_answer, info)] = lead(leader, {"one": leader}).values()
    assert info.err_code == ErrorCode.ASSIGNMENT_ERROR


def test_what_may_pass_is_left_to_the_group_to_try_again(made):
    leader = made(1, error=TimeoutException("creating topics took too long"))
    with pytest.raises(TimeoutException, match="too long"):
        lead(leader, {"one": leader})
    assert leader.assignor.failure is None


def test_a_leader_that_stops_answers_nobody(made):
    """An error in its answer would end every member; so they choose another leader."""
    leader = made(1, error=WakeupException("interrupted"))
    with pytest.raises(WakeupException):
        lead(leader, {"one": leader})
    assert leader.assignor.failure is None


def test_without_changelog_ends_owners_keep_their_tasks_and_it_is_looked_at_again(made):
    running = {TaskId(0, 0): LATEST_OFFSET, TaskId(0, 1): LATEST_OFFSET}
    members = {
        "one": made(1, ends_error=TimeoutException("no answer")),
        "two": made(2, sums=running),
    }
    earliest_ms = time.time() * 1000
    answers = lead(members["one"], members)
    assert answers["two"][1].active_tasks == (TaskId(0, 0), TaskId(0, 1))
    interval_ms = answers["one"][1].next_rebalance_ms - earliest_ms
    assert 600_000 - 1 <= interval_ms <= 600_000 + time.time() * 1000 - earliest_ms


def test_a_member_of_another_topology_is_refused_by_name(made):
    leader, other = made(1), made(2, topology=pipeline("other"))
    answers = lead(leader, {"one": leader, "two": other})
    assert answers["one"][1].err_code == ErrorCode.NONE
    assert len(answers["one"][1].active_tasks) == 2
    with pytest.raises(IncompatibleTopologyException, match="source flights.*source other"):
        other.assignor.on_assignment(answers["two"][0], GROUP)


def test_assignors_see_the_settings():
    config = StreamsConfig.from_dict(
        {
            "application.id": "app",
            "bootstrap.servers": "localhost:1",
            "acceptable.recovery.lag": 7,
            "max.warmup.replicas": 8,
            "num.standby.replicas": 9,
            "probing.rebalance.interval.ms": 60_001,
            "rack.aware.assignment.strategy": "min_traffic",
            "rack.aware.assignment.traffic_cost": 3,
            "rack.aware.assignment.non_overlap_cost": 4,
            "rack.aware.assignment.tags": "zone, cluster",
            "client.tag.zone": "a",
            "client.tag.cluster": "b",
        }
    )
    assert AssignmentConfigs.of(config) == AssignmentConfigs(
        acceptable_recovery_lag=7,
        max_warmup_replicas=8,
        num_standby_replicas=9,
        probing_rebalance_interval_ms=60_001,
        rack_aware_assignment_strategy="min_traffic",
        traffic_cost=3,
        non_overlap_cost=4,
        rack_aware_assignment_tags=("zone", "cluster"),
    )


# Racks, versions, and assignors that do not behave


class Seen(TaskAssignor):
    """Notes what it is shown and keeps everything where it was."""

    def __init__(self):
        self.state = None

    def assign(self, application_state):
        self.state = application_state
        return HighAvailabilityTaskAssignor().assign(application_state)


class Asks(TaskAssignor):
    """Asks for what the test says, twice, and places tasks without it."""

    def __init__(self, *questions, swallows=()):
        self.questions, self.swallows, self.answers = questions, swallows, []

    def assign(self, application_state):
        task = min(application_state.all_tasks)
        ask = {
            "racks": lambda: {str(at): set(found) for at, found in task.partition_to_rack_ids.items()},
            "ends": lambda: [
                client.lag_for(task.id) for client in application_state.kafka_streams_states(True).values()
            ],
        }
        for question in self.questions:
            try:
                self.answers += [ask[question](), ask[question]()]
            except self.swallows as error:
                self.answers.append(str(error))
        return StickyTaskAssignor().assign(application_state)


@pytest.mark.parametrize("strategy", ["none", "min_traffic"])
@pytest.mark.parametrize(
    ("questions", "answers"),
    [((), []), (("racks",), [{"flights-0": {"near"}}] * 2), (("ends",), [[100]] * 2)],
)
def test_the_broker_is_asked_for_racks_and_lags_once_an_assignor_wants_them(made, questions, answers, strategy):
    assignor = Asks(*questions)
    leader = made(1, assignor=assignor, settings={"rack.aware.assignment.strategy": strategy})
    [(_answer, info)] = lead(leader, {"one": leader}).values()
    assert len(info.active_tasks) == 2
    assert assignor.answers == answers
    assert leader.topics.questions == list(questions)


@pytest.mark.parametrize("question", ["racks", "ends"])
def test_a_question_that_fails_keeps_the_assignment_and_is_asked_again_in_the_next_rebalance(made, question, caplog):
    error = TimeoutException("no answer in time")
    running = {TaskId(0, 0): LATEST_OFFSET, TaskId(0, 1): LATEST_OFFSET}
    assignor = Asks(question)
    members = {
        "one": made(1, assignor=assignor, ends_error=error, racks_error=error),
        "two": made(2, assignor=assignor, sums=running),
    }
    for count in (1, 2):
        answers = lead(members["one"], members)
        assert answers["two"][1].active_tasks == (TaskId(0, 0), TaskId(0, 1))
        assert answers["one"][1].next_rebalance_ms == 0
        assert members["one"].topics.questions == [question] * count
    assert "cannot be listed: no answer in time" in caplog.text


def test_an_assignor_may_go_on_without_what_the_broker_does_not_know(made):
    assignor = Asks("racks", "racks", swallows=TaskAssignmentException)
    leader = made(1, assignor=assignor, racks_error=TimeoutException("no answer in time"))
    [(_answer, info)] = lead(leader, {"one": leader}).values()
    assert (len(info.active_tasks), info.err_code) == (2, ErrorCode.NONE)
    assert assignor.answers == ["the racks of the partitions cannot be listed: no answer in time"] * 2
    assert leader.topics.questions == ["racks"]


@pytest.mark.parametrize("question", ["racks", "ends"])
def test_a_leader_that_stops_while_the_assignor_asks_answers_nobody(made, question):
    error = WakeupException("interrupted")
    leader = made(1, assignor=Asks(question), ends_error=error, racks_error=error)
    with pytest.raises(WakeupException):
        lead(leader, {"one": leader})
    assert leader.assignor.failure is None


def test_a_store_without_changelog_is_state_that_no_standby_can_follow(made):
    seen = Seen()
    settings = {"num.standby.replicas": 1}
    members = {n: made(int(n), topology=pipeline(logged=False), assignor=seen, settings=settings) for n in "12"}
    answers = lead(members["1"], members)
    assert {(task.is_stateful, task.is_logged) for task in seen.state.all_tasks} == {(True, False)}
    assert [len(info.active_tasks) for _answer, info in answers.values()] == [1, 1]
    assert [dict(info.standby_tasks) for _answer, info in answers.values()] == [{}, {}]


def test_a_member_that_meets_an_older_group_joins_anew_in_its_version(made):
    member = made()
    info = AssignmentInfo(version=10, commonly_supported_version=10)
    member.assignor.on_assignment(MemberAssignment(user_data=encode_answer(info, Notice())), GROUP)
    assert [taken.next_rebalance_ms for taken, _ in member.taken] == [0]
    said = SubscriptionInfo.decode(member.assignor.subscription_user_data(frozenset()))
    assert (said.version, said.latest_supported_version) == (10, LATEST_SUPPORTED_VERSION)
    member.assignor.on_assignment(MemberAssignment(user_data=encode_answer(info, Notice())), GROUP)
    assert member.taken[1][0].next_rebalance_ms == NO_REBALANCE_SCHEDULED


def test_an_instance_that_others_cannot_find_yet_joins_anew(made):
    member = made(settings={"application.server": "one:80"})
    for hosts, soon in (({"two:80": []}, True), ({"two:80": [], "one:80": []}, False), ({}, False)):
        info = AssignmentInfo(partitions_by_host={HostInfo.parse(host): there for host, there in hosts.items()})
        member.assignor.on_assignment(MemberAssignment(user_data=encode_answer(info, Notice())), GROUP)
        assert (member.taken[-1][0].next_rebalance_ms == 0) is soon


class Sleeper(TaskAssignor):
    def __init__(self):
        self.go = threading.Event()

    def assign(self, application_state):
        self.go.wait(LONG)
        raise RuntimeError("nobody listens any more")


def test_an_assignor_that_does_not_come_back_ends_in_an_error_for_all(made):
    sleeper = Sleeper()
    leader = made(1, assignor=sleeper, settings={"max.poll.interval.ms": 1000})
    answers = lead(leader, {"one": leader, "two": made(2, assignor=sleeper)})
    sleeper.go.set()
    assert {info.err_code for _answer, info in answers.values()} == {ErrorCode.ASSIGNMENT_ERROR}
    assert "did not answer within 0.5 s" in str(leader.assignor.failure)
    with pytest.raises(TaskAssignmentException, match=r"Sleeper did not answer.*max\.poll\.interval\.ms=1000"):
        made(2).assignor.on_assignment(answers["two"][0], GROUP)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (ZeroDivisionError("oh"), "Answers failed: ZeroDivisionError: oh"),
        ("nonsense", "returned 'nonsense' instead of a TaskAssignment"),
        (TaskAssignment([]), "invalid assignment: MISSING_PROCESS_ID"),
    ],
)
def test_an_assignor_that_fails_is_named_to_every_member(made, answer, message):
    broken = Answers(answer)
    members = {"one": made(1, assignor=broken), "two": made(2, assignor=broken)}
    answers = lead(members["one"], members)
    assert isinstance(members["one"].assignor.failure, StreamsException)
    for name in members:
        with pytest.raises(TaskAssignmentException, match=message):
            made(2).assignor.on_assignment(answers[name][0], GROUP)


def test_an_assignors_words_do_not_make_another_topology(made):
    broken = Answers(ValueError("this instance runs another topology"))
    leader = made(1, assignor=broken)
    answers = lead(leader, {"one": leader})
    with pytest.raises(TaskAssignmentException, match="runs another topology"):
        leader.assignor.on_assignment(answers["one"][0], GROUP)


def test_an_assignor_that_only_newer_members_have_is_not_waited_for(made, caplog):
    leader, newer = made(1), made(2)
    newer.assignor._assignor = type("Brilliant", (Seen,), {"__module__": "sparkrelay.assignment"})()
    answers = lead(leader, {"one": leader, "two": newer, "three": newer})
    assert "sparkrelay.assignment:Brilliant" in caplog.text
    assert {info.err_code for _answer, info in answers.values()} == {ErrorCode.NONE}


def test_members_that_name_different_assignors_get_one_that_all_have(made, caplog):
    seen = Seen()
    leader = made(1, assignor=seen)
    answers = lead(leader, {"one": leader, "two": made(2)})
    assert seen.state is None
    assert "members name different task assignors" in caplog.text
    assert sum(len(info.active_tasks) for _answer, info in answers.values()) == 2
    lead(leader, {"one": leader, "two": made(2, assignor=Seen())})
    assert seen.state is not None


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (SystemExit(1), "SystemExit: 1"),
        (KeyboardInterrupt("keys"), "KeyboardInterrupt: keys"),
        (ValueError("half a pair \udc80"), r"half a pair \\udc80"),
        (ValueError("zero \0 and one"), "zero \0 and one"),
        (ValueError("x" * 1_000_000), "x" * 100),
    ],
    ids=["exit", "interrupt", "lone surrogate", "zero", "long"],
)
def test_what_an_assignor_raises_reaches_all_members_and_the_leaders_thread(made, error, message):
    raises = Answers(error)
    members = {"one": made(1, assignor=raises), "two": made(2, assignor=raises)}
    answers = lead(members["one"], members)
    assert isinstance(members["one"].assignor.failure, StreamsException)
    assert sum(len(answer.user_data) for answer, _info in answers.values()) < 10_000
    for name in members:
        with pytest.raises(TaskAssignmentException, match=message):
            made(2).assignor.on_assignment(answers[name][0], GROUP)
