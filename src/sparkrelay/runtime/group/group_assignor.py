"""The consumer's assignor of stream groups: a member's subscription, and the leader's work.

Runs on the polling thread, inside ``poll``. The leader creates missing internal topics and calls the pure
``assignment.assign_group``. It asks the broker for changelog ends and racks only if the assignor wants to know. Members
with another topology than the leader's are rejected; the reason follows the assignment's bytes, because Kafka Streams'
format has no field for it.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from sparkrelay.assignment import (
    AssignmentConfigs,
    GroupMember,
    HighAvailabilityTaskAssignor,
    TaskInfo,
    agreed_assignor,
    assignor_name,
)
from sparkrelay.assignment.leader.client_states import end_offset_sums
from sparkrelay.assignment.leader.group import assign_group
from sparkrelay.assignment.once import Once
from sparkrelay.assignment.validation import message_of
from sparkrelay.consumer.base.assignor import MemberAssignment
from sparkrelay.errors import (
    ApplicationShutdownException,
    ConfigException,
    IncompatibleTopologyException,
    KafkaException,
    MissingSourceTopicException,
    SparkRelayError,
    StreamsException,
    TaskAssignmentException,
    WakeupException,
)
from sparkrelay.protocol import (
    ASSIGNOR_TAG,
    PAGE_TAG,
    TOPOLOGY_TAG,
    AssignmentInfo,
    ErrorCode,
    HostInfo,
    SpokenVersion,
    SubscriptionInfo,
)
from sparkrelay.runtime.contract import fault_points
from sparkrelay.runtime.group.assignment_log import Notice, why
from sparkrelay.runtime.group.leader_log import lines_of, summarise
from sparkrelay.runtime.topics.topology_metadata import difference, topology_metadata
from sparkrelay.types import ProcessId

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from sparkrelay.assignment import TaskAssignor
    from sparkrelay.assignment.leader.group import GroupResult
    from sparkrelay.client.group_requests import GroupMetadata
    from sparkrelay.config import StreamsConfig
    from sparkrelay.consumer.base.assignor import ClusterView, MemberSubscription
    from sparkrelay.runtime.topics.topics import Topics
    from sparkrelay.topology import Topology
    from sparkrelay.types import TaskId

T = TypeVar("T")

log = logging.getLogger(__name__)

#: ``next_rebalance_ms`` for a rebalance at once.
_AT_ONCE = 0
#: An assignor's share of max.poll.interval.ms, which leaves time to report its failure to the members.
_SHARE_OF_REBALANCE = 0.5
#: Bounds on listing changelog ends, the first as a share of max.poll.interval.ms. Without the ends, lags are unknown
#: until the next rebalance.
_SHARE_FOR_ENDS = 0.125
_LONGEST_FOR_ENDS_S = 10.0
#: Separates the assignment's bytes from the leader's notice.
_NOTICE = b"\x00sparkrelay-notice:"
#: Separates those from the reason of a rejection: one byte for its kind, then text.
_REASON = b"\x00sparkrelay-reason:"
_OTHER_TOPOLOGY = b"t"
_FAILURE = b"f"
#: Characters of the text; the leader's log has all of it.
_LONGEST_REASON = 2_000
#: Stands for the process of an unreadable member.
_NOBODY = ProcessId(uuid.UUID(int=0))
#: Host names have at most 255 characters.
_LONGEST_PAGE = 300


@dataclass(frozen=True, slots=True)
class _View:
    """The leader's input.

    Attributes:
        members: the instances of SparkRelay.
        foreign: those with another topology, and the difference.
        strangers: members that are not instances of SparkRelay.
        ends: lists end offset sums of changelogs by task, on demand.
        assignor: supported by all members.
    """

    members: list[GroupMember]
    foreign: dict[str, str]
    strangers: list[GroupMember]
    tasks: list[TaskInfo]
    ends: Once[Mapping[TaskId, int]]
    assignor: TaskAssignor


class StreamsGroupAssignor:
    """One member's part in rebalances. See the consumer's ``PartitionAssignor`` for the threading rule.

    ``assignor`` is the configured one; ``load`` makes another by name if members disagree. ``offset_sums`` returns the
    local state. ``on_info`` receives each assignment, and ``on_decision`` on the leader the cause of the rebalance and
    the lines of its decisions. ``page`` is the address of this instance's page, if any.
    """

    name = "stream"
    supports_cooperative = True

    def __init__(
        self,
        *,
        config: StreamsConfig,
        topology: Topology,
        process_id: ProcessId,
        topics: Topics,
        assignor: TaskAssignor,
        load: Callable[[str], TaskAssignor],
        offset_sums: Callable[[], Mapping[TaskId, int]],
        on_info: Callable[[AssignmentInfo, GroupMetadata], None],
        on_decision: Callable[[str, Sequence[str]], None] = lambda *_: None,
        page: str = "",
    ) -> None:
        self._config = config
        self._topology = topology
        self._process_id = process_id
        self._topics = topics
        self._assignor = assignor
        self._assignors = {assignor_name(type(assignor)): assignor}
        self._load = load
        self._spoken = SpokenVersion()
        self._offset_sums = offset_sums
        self._on_info = on_info
        self._on_decision = on_decision
        self._page = page
        self._unique = 0
        #: The leader's notice about the last rebalance.
        self.notice = Notice()
        #: Why this member has requested the next rebalance, if it has.
        self.asked: str | None = None
        #: Members by process, and the cause of the next rebalance, if this member led the last one.
        self._led: dict[str, frozenset[str]] = {}
        self._next_cause: str | None = None
        #: True once the next subscription is to ask for the shutdown of the application.
        self.shutdown_requested = False
        #: The failure of a rebalance led here; the stream thread raises it once the answer is sent.
        self.failure: Exception | None = None

    # -- every member -----------------------------------------------------------------------------------------------

    def subscription_user_data(self, topics: frozenset[str]) -> bytes:
        """Return this member's identity, state and topology."""
        del topics
        self._unique = (self._unique + 1) % 128
        tags = {
            **self._config.client_tags,
            TOPOLOGY_TAG: topology_metadata(self._topology),
            ASSIGNOR_TAG: assignor_name(type(self._assignor)),
            **({PAGE_TAG: self._page} if self._page else {}),
        }
        return SubscriptionInfo(
            process_id=self._process_id,
            version=self._spoken.used,
            latest_supported_version=self._spoken.latest,
            user_end_point=self._config.application_server or None,
            task_offset_sums=self._offset_sums(),
            unique_field=self._unique,
            client_tags=tags,
            error_code=ErrorCode.SHUTDOWN_REQUESTED if self.shutdown_requested else ErrorCode.NONE,
        ).encode()

    def on_assignment(self, assignment: MemberAssignment, metadata: GroupMetadata) -> None:
        """Take the leader's assignment.

        Raises:
            StreamsException: the leader sent an error, or is not an instance of SparkRelay.
        """
        data, refused, reason = bytes(assignment.user_data).partition(_REASON)
        data, noticed, notice = data.partition(_NOTICE)
        if not refused and not noticed:
            raise StreamsException(
                f"the leader of group {self._config.application_id!r} is not an instance of SparkRelay: another "
                "program, such as a Kafka Streams application, has joined with the same application.id or group.id. "
                "Give it another one, or stop it (kafka-consumer-groups.sh --describe --members --group "
                f"{self._config.application_id} shows who it is), and restart this instance"
            )
        info = AssignmentInfo.decode(data)
        self.notice, self.asked = Notice.decode(notice), None
        if info.err_code != ErrorCode.NONE:
            raise _refusal(ErrorCode(info.err_code), reason)
        if self._spoken.answered(info.version, info.commonly_supported_version):
            log.info("the group speaks version %s of the assignment protocol: rejoining", self._spoken.used)
            info = replace(info, next_rebalance_ms=_AT_ONCE)
        elif self._is_unknown_to(info):
            log.info("the group does not know this instance's application.server yet: rejoining")
            info = replace(info, next_rebalance_ms=_AT_ONCE)
        self._on_info(info, metadata)

    def _is_unknown_to(self, info: AssignmentInfo) -> bool:
        """Return whether the group knows other instances' endpoints, but not this one's."""
        hosts = info.partitions_by_host
        return bool(hosts and self._config.application_server) and (
            HostInfo.parse(self._config.application_server) not in hosts
        )

    # -- the leader -------------------------------------------------------------------------------------------------

    def assign(self, cluster: ClusterView, members: Mapping[str, MemberSubscription]) -> dict[str, MemberAssignment]:
        """Assign all tasks; every member gets an answer, also after errors."""
        del cluster  # may be older than the topics just created
        try:
            view = self._look(members)
        except (SparkRelayError, ValueError) as error:
            if isinstance(error, WakeupException) or (isinstance(error, KafkaException) and error.retriable):
                # A stop, or an unavailable broker: the group retries. An error in the answer would end every member.
                raise
            return self._failed(error, members)
        try:
            result = self._decide(view)
        except StreamsException as error:
            return self._failed(error, members)
        fault_points.reach("leader-before-answer")
        return self._answer(view, result)

    def _look(self, members: Mapping[str, MemberSubscription]) -> _View:
        """Decode the subscriptions and create internal topics; racks and changelog ends are listed on demand."""
        everybody = [_read(member_id, member) for member_id, member in members.items()]
        strangers = [member for member in everybody if not _is_instance(member)]
        for stranger in strangers:
            log.error(
                "group %s: member %s is not an instance of SparkRelay and gets no tasks; give that program another "
                "application.id or group.id",
                self._config.application_id,
                stranger.consumer_id,
            )
        decoded = [member for member in everybody if _is_instance(member)]
        foreign = self._foreign_topologies(decoded)
        layout = self._topics.prepare()
        topics = {at.topic for shape in layout.tasks.values() for at in (*shape.inputs, *shape.changelogs.values())}
        racks = _on_demand("the racks of the partitions", lambda: self._topics.racks(topics))
        tasks = [
            TaskInfo.of(
                id_,
                inputs=shape.inputs,
                changelogs=shape.changelogs.values(),
                stores=shape.stores or shape.changelogs,
                racks=racks,
            )
            for id_, shape in layout.tasks.items()
        ]
        ends = _on_demand("the changelogs' end offsets, and so lags,", lambda: self._ends(tasks))
        return _View(decoded, foreign, strangers, tasks, ends, self._agreed(decoded))

    def _decide(self, view: _View) -> GroupResult:
        """Call the assignor, which may be user code, within a time limit.

        Raises:
            StreamsException: it failed, or took too long.
            WakeupException: a stop interrupted its request to the broker.
        """
        name = assignor_name(type(view.assignor))
        limit_s = self._config.max_poll_interval_ms * _SHARE_OF_REBALANCE / 1000
        try:
            result = _within(
                limit_s,
                lambda: assign_group(
                    members=[*view.members, *view.strangers],
                    tasks=view.tasks,
                    ends=view.ends,
                    assignor=view.assignor,
                    configs=AssignmentConfigs.of(self._config),
                    leader=self._process_id,
                    now_ms=int(time.time() * 1000),
                    refused=dict.fromkeys(
                        [*view.foreign, *(stranger.consumer_id for stranger in view.strangers)],
                        ErrorCode.ASSIGNMENT_ERROR,
                    ),
                ),
            )
        except WakeupException:
            raise
        except BaseException as error:
            # Also SystemExit and the like: the members need an answer.
            raise StreamsException(f"task assignor {name} failed: {message_of(error)}") from error
        if result is None:
            raise StreamsException(
                f"task assignor {name} did not answer within {limit_s:g} s, half of "
                f"max.poll.interval.ms={self._config.max_poll_interval_ms}; make it faster or raise that setting"
            )
        return result

    def _answer(self, view: _View, result: GroupResult) -> dict[str, MemberAssignment]:
        """Log the decisions and return each member's answer."""
        self.failure = result.failure
        notice = self._notice(view.members, result.awaited)
        self._next_cause = _next_cause(result)
        log.info("leads the rebalance (members: %d), because %s: %s", len(view.members), notice.why, summarise(result))
        lines = lines_of(result, view.members)
        self._on_decision(notice.why, lines)
        for line in lines:
            log.debug("%s", line)
        strangers = {stranger.consumer_id for stranger in view.strangers}
        answers = {}
        for member_id, member in result.members.items():
            data = member.info.encode() if member_id in strangers else encode_answer(member.info, notice)
            if member_id in view.foreign:
                data += _reason_bytes(_OTHER_TOPOLOGY, view.foreign[member_id])
            elif result.failure is not None:
                data += _reason_bytes(_FAILURE, str(result.failure))
            answers[member_id] = MemberAssignment(partitions=tuple(member.partitions), user_data=data)
        return answers

    def _notice(self, members: list[GroupMember], warming: Mapping[ProcessId, Collection[TaskId]]) -> Notice:
        """Return the notice about this rebalance, and remember its members."""
        led: dict[str, frozenset[str]] = {}
        for member in members:
            name = str(member.subscription.process_id)[:8]
            led[name] = led.get(name, frozenset()) | {member.consumer_id}
        # If another member led the last one, its notice names the processes, but not their members.
        again = [name for name, ids in self._led.items() if name in led and not ids & led[name]]
        text = why(
            led,
            self._led or self.notice.processes,
            again=again,
            asked=self.asked or self._next_cause,
            begins=not any(member.owned_partitions for member in members),
        )
        self._led = led
        pages = {
            member.subscription.process_id: page
            for member in members
            if (page := member.subscription.client_tags.get(PAGE_TAG)) is not None and len(page) <= _LONGEST_PAGE
        }
        return Notice.of((member.subscription.process_id for member in members), text, warming, pages)

    def _foreign_topologies(self, members: list[GroupMember]) -> dict[str, str]:
        """Return the members with another topology, and the difference."""
        ours = topology_metadata(self._topology)
        reasons = {}
        for member in members:
            # Versions without tags, and newer ones that we cannot read, have none.
            theirs = member.subscription.client_tags.get(TOPOLOGY_TAG, ours)
            if theirs != ours:
                reasons[member.consumer_id] = (
                    f"this instance runs another topology than the group of application.id="
                    f"{self._config.application_id!r}: {difference(ours, theirs)}. Run the same script everywhere, or "
                    "give the changed pipeline an application.id of its own"
                )
                log.warning("rejected member %s: %s", member.consumer_id, reasons[member.consumer_id])
        return reasons

    def _failed(self, error: Exception, members: Mapping[str, MemberSubscription]) -> dict[str, MemberAssignment]:
        """Return error answers for all members; the stream thread raises the error afterwards."""
        self.failure = error
        missing = isinstance(error, MissingSourceTopicException)
        code = ErrorCode.INCOMPLETE_SOURCE_TOPIC_METADATA if missing else ErrorCode.ASSIGNMENT_ERROR
        data = AssignmentInfo(err_code=code).encode() + _reason_bytes(_FAILURE, str(error))
        return {member_id: MemberAssignment(partitions=(), user_data=data) for member_id in members}

    def _agreed(self, members: list[GroupMember]) -> TaskAssignor:
        """Return the assignor that all members support."""
        named = {member.consumer_id: member.subscription.client_tags.get(ASSIGNOR_TAG) for member in members}
        name = agreed_assignor(named.values())
        if len(set(named.values())) > 1:
            log.warning("members name different task assignors, %s is used until they agree: %s", name, named)
        if name not in self._assignors:
            try:
                self._assignors[name] = self._load(name)
            except ConfigException as error:
                # It may be of a newer release.
                name = assignor_name(HighAvailabilityTaskAssignor)
                log.warning("%s; %s is used", error, name)
                self._assignors.setdefault(name, self._load(name))
        return self._assignors[name]

    def _ends(self, tasks: list[TaskInfo]) -> Mapping[TaskId, int]:
        changelogs = {partition for task in tasks for partition in task.changelog_topic_partitions}
        # Bounded: a partition may have no leader, and the whole group waits.
        limit_s = min(self._config.max_poll_interval_ms * _SHARE_FOR_ENDS / 1000, _LONGEST_FOR_ENDS_S)
        timeout = min(limit_s, self._config.default_api_timeout_ms / 1000)
        return end_offset_sums(tasks, self._topics.changelog_ends(changelogs, timeout=timeout))


def encode_answer(info: AssignmentInfo, notice: Notice) -> bytes:
    """Return the leader's answer to an instance: its assignment and the notice."""
    return info.encode() + _NOTICE + notice.encode()


def _read(member_id: str, member: MemberSubscription) -> GroupMember:
    """Return a member; if its subscription is unreadable, only what it owns."""
    try:
        subscription = SubscriptionInfo.decode(member.user_data)
    except (SparkRelayError, ValueError) as error:
        log.warning("the subscription of member %s of the group cannot be decoded: %s", member_id, error)
        subscription = SubscriptionInfo(process_id=_NOBODY)
    return GroupMember(
        consumer_id=member_id,
        subscription=subscription,
        owned_partitions=frozenset(member.owned_partitions),
        rack_id=member.rack or None,
    )


def _is_instance(member: GroupMember) -> bool:
    """Return whether a member is an instance of SparkRelay: these send their topology if the version has tags."""
    subscription = member.subscription
    return subscription.is_future or not subscription.has_tags or TOPOLOGY_TAG in subscription.client_tags


def _on_demand(what: str, ask: Callable[[], T]) -> Once[T]:
    """Return a request to the broker that is made at the first call; its failure is KIP-924's exception."""

    def fetch() -> T:
        try:
            return ask()
        except WakeupException:
            raise
        except SparkRelayError as error:
            if isinstance(error, KafkaException) and not error.retriable:
                raise  # permanent, such as a missing ACL
            log.warning("%s cannot be listed: %s", what, error)
            raise TaskAssignmentException(f"{what} cannot be listed: {error}") from error

    return Once(fetch)


def _within(limit_s: float, decide: Callable[[], GroupResult]) -> GroupResult | None:
    """Return the decision, or None if it takes longer; its daemon thread is then left alone."""
    future: Future[GroupResult] = Future()

    def run() -> None:
        try:
            future.set_result(decide())
        except BaseException as error:  # noqa: BLE001 - the polling thread raises it
            future.set_exception(error)

    threading.Thread(target=run, name="sparkrelay-assignor", daemon=True).start()
    return future.result() if wait([future], limit_s).done else None


def _next_cause(result: GroupResult) -> str | None:
    """Return the cause of the next rebalance, if one is needed."""
    if any(result.withheld.values()):
        return "tasks that were given up go to their new owners"
    return "copies were to be looked at again" if result.probing_rebalance else None


def _reason_bytes(kind: bytes, reason: str) -> bytes:
    """Return a reason as bytes after an assignment: any text of user code, shortened, as every member gets it."""
    text = reason if len(reason) <= _LONGEST_REASON else f"{reason[:_LONGEST_REASON]}..."
    return _REASON + kind + text.encode("utf-8", "backslashreplace")


def _refusal(code: ErrorCode, reason: bytes) -> StreamsException:
    kind, text = reason[:1], reason[1:].decode("utf-8", "replace")
    if kind == _OTHER_TOPOLOGY:
        return IncompatibleTopologyException(text)
    if code is ErrorCode.SHUTDOWN_REQUESTED:
        return ApplicationShutdownException(
            "an instance asked the whole application to shut down, by its uncaught-exception handler; its log says why"
        )
    return TaskAssignmentException(text or f"the group's leader answered with error {code.name}; its log says why")
