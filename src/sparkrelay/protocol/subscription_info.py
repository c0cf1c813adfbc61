"""A member's message to the leader when it joins: its identity, and its local state by task.

Versions 1 to 11; ``docs/internals/assignment.md`` has the layouts. Of a newer version only the version numbers can be
read, which is all that version probing needs.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from sparkrelay.errors import TaskAssignmentException
from sparkrelay.protocol.binary import Reader, Writer
from sparkrelay.protocol.common import LATEST_OFFSET, LATEST_SUPPORTED_VERSION, UNKNOWN_OFFSET_SUM, check_version
from sparkrelay.protocol.named_task_id import NamedTaskId, topology_name
from sparkrelay.types import ProcessId, TaskId

if TYPE_CHECKING:
    from collections.abc import Mapping

_UNKNOWN_VERSION = -1
#: The first version with a field for the latest version that the member supports.
_FIRST_WITH_LATEST = 3
_FIRST_WITH_TAGS = 11
#: Stands for all members of a future version, whose ids cannot be read.
_FUTURE_PROCESS = ProcessId(uuid.UUID(int=0))


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionInfo:
    """The user data of one member's subscription.

    Attributes:
        process_id: The member's process.
        version: Wire version.
        latest_supported_version: Newest version that the member understands; -1 if unknown (versions 1 and 2).
        user_end_point: ``host:port`` where the instance answers queries, or None.
        task_offset_sums: Sum of the changelog offsets, or a sentinel, of each task with local state.
        unique_field: Counts subscriptions, so that the broker sees each as changed.
        error_code: SHUTDOWN_REQUESTED if the member asks the whole group to stop, else NONE.
        client_tags: The member's tags, including reserved ones.
    """

    process_id: ProcessId
    version: int = LATEST_SUPPORTED_VERSION
    latest_supported_version: int = LATEST_SUPPORTED_VERSION
    user_end_point: str | None = None
    task_offset_sums: Mapping[TaskId, int] = field(default_factory=dict, hash=False)
    unique_field: int = 0
    error_code: int = 0
    client_tags: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        _check_versions(self.version, self.latest_supported_version)
        object.__setattr__(self, "task_offset_sums", MappingProxyType(dict(self.task_offset_sums)))
        object.__setattr__(self, "client_tags", MappingProxyType(dict(self.client_tags)))

    @property
    def is_future(self) -> bool:
        """Whether only the version numbers can be read, because the version is newer than ours."""
        return self.version > LATEST_SUPPORTED_VERSION

    @property
    def has_tags(self) -> bool:
        """Whether the version has tags."""
        return self.version >= _FIRST_WITH_TAGS

    @property
    def prev_tasks(self) -> frozenset[TaskId]:
        """Tasks that were active and running on the member."""
        return frozenset(task for task, total in self.task_offset_sums.items() if total == LATEST_OFFSET)

    @property
    def standby_tasks(self) -> frozenset[TaskId]:
        """Other tasks with local state on the member."""
        return frozenset(task for task, total in self.task_offset_sums.items() if total != LATEST_OFFSET)

    def encode(self) -> bytes:
        """Return the subscription encoded in its version.

        Raises:
            ValueError: the version is newer than we can write.
            TaskAssignmentException: a task of a named topology in a version below 10.
        """
        check_version(self.version)
        out = Writer()
        out.int32(self.version)
        if self.version >= _FIRST_WITH_LATEST:
            out.int32(self.latest_supported_version)
        out.raw(self.process_id.id.bytes)
        if self.version < 7:
            for tasks in (self.prev_tasks, self.standby_tasks):
                _write_plain_tasks(out, tasks, self.version)
        if self.version >= 2:
            out.blob((self.user_end_point or "").encode())
        if 7 <= self.version <= 9:
            self._write_grouped_offsets(out)
        elif self.version >= 10:
            self._write_flat_offsets(out)
        if self.version >= 8:
            out.int8(self.unique_field)
        if self.version >= 9:
            out.int32(self.error_code)
        if self.has_tags:
            for key, value in out.counted(self.client_tags.items()):
                out.blob(key.encode())
                out.blob(value.encode())
        return out.getvalue()

    def _write_grouped_offsets(self, out: Writer) -> None:
        groups: dict[int, list[tuple[int, int]]] = {}
        for task, total in self.task_offset_sums.items():
            topology_name(task, self.version)
            groups.setdefault(task.subtopology, []).append((task.partition, total))
        for subtopology, sums in out.counted(groups.items()):
            out.int32(subtopology)
            for partition, total in out.counted(sums):
                out.int32(partition)
                out.int64(total)

    def _write_flat_offsets(self, out: Writer) -> None:
        for task, total in out.counted(self.task_offset_sums.items()):
            out.int32(task.subtopology)
            out.int32(task.partition)
            out.int64(total)
            out.short_string(task.topology if isinstance(task, NamedTaskId) else None)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Parse a subscription of any version.

        Raises:
            TaskAssignmentException: the bytes are truncated or have impossible counts.
            ValueError: the version numbers are contradictory.
        """
        source = Reader(data)
        try:
            version = source.int32()
            latest = source.int32() if version >= _FIRST_WITH_LATEST else _UNKNOWN_VERSION
            fields = {} if version > LATEST_SUPPORTED_VERSION else _read_fields(source, version)
        except (EOFError, ValueError) as error:
            raise TaskAssignmentException(
                f"cannot read a member's subscription of {len(data)} bytes: {error}"
            ) from error
        if not fields:
            fields["process_id"] = _FUTURE_PROCESS
        return cls(version=version, latest_supported_version=latest, **fields)


def _check_versions(version: int, latest: int) -> None:
    if latest != _UNKNOWN_VERSION:
        check_version(version, latest=latest)
    elif not 1 <= version < _FIRST_WITH_LATEST:
        raise ValueError(
            f"version {version} of a subscription must name the latest version that the member supports, not "
            f"{_UNKNOWN_VERSION}: only versions 1 and 2 omit it"
        )


def _read_fields(source: Reader, version: int) -> dict[str, Any]:
    process_id = ProcessId(uuid.UUID(bytes=source.raw(16)))
    sums: dict[TaskId, int] = {}
    if version < 7:
        sums |= dict.fromkeys(_read_plain_tasks(source), LATEST_OFFSET)
        sums |= dict.fromkeys(_read_plain_tasks(source), UNKNOWN_OFFSET_SUM)
    end_point = source.blob().decode() if version >= 2 else ""
    if 7 <= version <= 9:
        sums = _read_grouped_offsets(source)
    elif version >= 10:
        sums = _read_flat_offsets(source)
    return {
        "process_id": process_id,
        "user_end_point": end_point or None,
        "task_offset_sums": sums,
        "unique_field": source.int8() if version >= 8 else 0,
        "error_code": source.int32() if version >= 9 else 0,
        "client_tags": _read_tags(source) if version >= _FIRST_WITH_TAGS else {},
    }


def _write_plain_tasks(out: Writer, tasks: frozenset[TaskId], version: int) -> None:
    for task in out.counted(sorted(tasks)):
        topology_name(task, version)
        out.int32(task.subtopology)
        out.int32(task.partition)


def _read_plain_tasks(source: Reader) -> list[TaskId]:
    return [TaskId(source.int32(), source.int32()) for _ in range(source.count(item_size=8))]


def _read_grouped_offsets(source: Reader) -> dict[TaskId, int]:
    sums: dict[TaskId, int] = {}
    for _ in range(source.count(item_size=8)):
        subtopology = source.int32()
        for _ in range(source.count(item_size=12)):
            task = TaskId(subtopology, source.int32())
            sums[task] = source.int64()
    return sums


def _read_flat_offsets(source: Reader) -> dict[TaskId, int]:
    sums: dict[TaskId, int] = {}
    for _ in range(source.count(item_size=18)):
        subtopology, partition, total = source.int32(), source.int32(), source.int64()
        name = source.short_string()
        task = TaskId(subtopology, partition) if name is None else NamedTaskId(name, subtopology, partition)
        sums[task] = total
    return sums


def _read_tags(source: Reader) -> dict[str, str]:
    return {source.blob().decode(): source.blob().decode() for _ in range(source.count(item_size=8))}
