"""The leader's message to a member: its tasks, who hosts what, and when to rebalance next.

Versions 1 to 11; ``docs/internals/assignment.md`` has the layouts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Self

from sparkrelay.errors import TaskAssignmentException
from sparkrelay.protocol.binary import Reader, Writer
from sparkrelay.protocol.common import LATEST_SUPPORTED_VERSION, NO_REBALANCE_SCHEDULED, HostInfo, check_version
from sparkrelay.protocol.named_task_id import NamedTaskId, topology_name
from sparkrelay.types import TaskId, TopicPartition

_UNKNOWN_VERSION = -1
_Hosts = Mapping[HostInfo, tuple[TopicPartition, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentInfo:
    """The user data of one member's assignment.

    Attributes:
        version: Wire version: the lowest that any member sent.
        commonly_supported_version: Highest version that all members understand; -1 if unknown (versions 1 and 2).
        active_tasks: One entry for each assigned partition, in the order of the consumer protocol's sorted list.
        standby_tasks: Standbys and warm-ups with their input partitions.
        partitions_by_host: Input partitions of the active tasks of each queryable instance.
        standby_partitions_by_host: Likewise for standby tasks.
        err_code: An :class:`ErrorCode`; unless it is NONE, there are no tasks.
        next_rebalance_ms: Wall-clock time at which to request a rebalance: 0 at once, LONG_MAX never.
    """

    version: int = LATEST_SUPPORTED_VERSION
    commonly_supported_version: int = LATEST_SUPPORTED_VERSION
    active_tasks: Sequence[TaskId] = ()
    standby_tasks: Mapping[TaskId, Sequence[TopicPartition]] = field(default_factory=dict, hash=False)
    partitions_by_host: Mapping[HostInfo, Sequence[TopicPartition]] = field(default_factory=dict, hash=False)
    standby_partitions_by_host: Mapping[HostInfo, Sequence[TopicPartition]] = field(default_factory=dict, hash=False)
    err_code: int = 0
    next_rebalance_ms: int = NO_REBALANCE_SCHEDULED

    def __post_init__(self) -> None:
        check_version(self.version)
        object.__setattr__(self, "active_tasks", tuple(self.active_tasks))
        for name in ("standby_tasks", "partitions_by_host", "standby_partitions_by_host"):
            frozen = {key: tuple(partitions) for key, partitions in getattr(self, name).items()}
            object.__setattr__(self, name, MappingProxyType(frozen))

    def encode(self) -> bytes:
        """Return the assignment encoded in its version.

        Raises:
            TaskAssignmentException: a task of a named topology in a version below 10.
        """
        out = Writer()
        out.int32(self.version)
        if self.version >= 3:
            out.int32(self.commonly_supported_version)
        for task in out.counted(self.active_tasks):
            _write_task(out, task, self.version)
        for task, partitions in out.counted(self.standby_tasks.items()):
            _write_task(out, task, self.version)
            _write_partitions(out, partitions)
        if 2 <= self.version <= 4:
            _write_hosts(out, self.partitions_by_host, None)
        elif self.version >= 5:
            self._write_hosts_by_dictionary(out)
        if self.version >= 4:
            out.int32(self.err_code)
        if self.version >= 7:
            out.int64(self.next_rebalance_ms)
        return out.getvalue()

    def _write_hosts_by_dictionary(self, out: Writer) -> None:
        maps = [self.partitions_by_host]
        if self.version >= 6:
            maps.append(self.standby_partitions_by_host)
        indices: dict[str, int] = {}
        for hosts in maps:
            for partitions in hosts.values():
                for partition in partitions:
                    indices.setdefault(partition.topic, len(indices))
        for topic, index in out.counted(indices.items()):
            out.int32(index)
            out.java_utf(topic)
        for hosts in maps:
            _write_hosts(out, hosts, indices)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Parse an assignment.

        Raises:
            TaskAssignmentException: unknown version, or truncated or corrupt bytes; the cause is chained.
        """
        source = Reader(data)
        try:
            version = source.int32()
            if not 1 <= version <= LATEST_SUPPORTED_VERSION:
                raise TaskAssignmentException(
                    f"Unable to decode assignment data: used version: {version}; "
                    f"latest supported version: {LATEST_SUPPORTED_VERSION}"
                )
            return cls._decode(source, version)
        except (EOFError, UnicodeDecodeError) as error:
            raise TaskAssignmentException("Failed to decode AssignmentInfo") from error
        except (KeyError, ValueError) as error:
            raise TaskAssignmentException("Corrupted user data byte[].") from error

    @classmethod
    def _decode(cls, source: Reader, version: int) -> Self:
        common = source.int32() if version >= 3 else _UNKNOWN_VERSION
        active = [_read_task(source, version) for _ in range(source.count(item_size=8))]
        standby = {_read_task(source, version): _read_partitions(source) for _ in range(source.count(item_size=12))}
        hosts: _Hosts = {}
        standby_hosts: _Hosts = {}
        if 2 <= version <= 4:
            hosts = _read_hosts(source, None)
        elif version >= 5:
            topics = {source.int32(): source.java_utf() for _ in range(source.count(item_size=6))}
            hosts = _read_hosts(source, topics)
            standby_hosts = _read_hosts(source, topics) if version >= 6 else {}
        return cls(
            version=version,
            commonly_supported_version=common,
            active_tasks=active,
            standby_tasks=standby,
            partitions_by_host=hosts,
            standby_partitions_by_host=standby_hosts,
            err_code=source.int32() if version >= 4 else 0,
            next_rebalance_ms=source.int64() if version >= 7 else NO_REBALANCE_SCHEDULED,
        )


def _write_task(out: Writer, task: TaskId, version: int) -> None:
    name = topology_name(task, version)
    out.int32(task.subtopology)
    out.int32(task.partition)
    if version >= 10:
        out.utf16(name)


def _read_task(source: Reader, version: int) -> TaskId:
    subtopology, partition = source.int32(), source.int32()
    name = source.utf16() if version >= 10 else ""
    return NamedTaskId(name, subtopology, partition) if name else TaskId(subtopology, partition)


def _write_partitions(out: Writer, partitions: Sequence[TopicPartition]) -> None:
    for topic, partition in out.counted(partitions):
        out.java_utf(topic)
        out.int32(partition)


def _read_partitions(source: Reader) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(source.java_utf(), source.int32()) for _ in range(source.count(item_size=6)))


def _write_hosts(
    out: Writer, hosts: Mapping[HostInfo, Sequence[TopicPartition]], indices: Mapping[str, int] | None
) -> None:
    for host, partitions in out.counted(hosts.items()):
        out.java_utf(host.host)
        out.int32(host.port)
        if indices is None:
            _write_partitions(out, partitions)
            continue
        for topic, partition in out.counted(partitions):
            out.int32(indices[topic])
            out.int32(partition)


def _read_hosts(source: Reader, topics: Mapping[int, str] | None) -> _Hosts:
    hosts: dict[HostInfo, tuple[TopicPartition, ...]] = {}
    for _ in range(source.count(item_size=10)):
        host = HostInfo(source.java_utf(), source.int32())
        if topics is None:
            hosts[host] = _read_partitions(source)
        else:
            hosts[host] = tuple(
                TopicPartition(topics[source.int32()], source.int32()) for _ in range(source.count(item_size=8))
            )
    return hosts
