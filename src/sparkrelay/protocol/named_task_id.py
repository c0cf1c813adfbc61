"""Task ids of Kafka Streams' named topologies.

We never create them, but Java members may, and version 10 and later carry them; decoding must preserve them.
"""

from __future__ import annotations

from typing import Self

from sparkrelay.errors import TaskAssignmentException
from sparkrelay.types import TaskId


class NamedTaskId(TaskId):
    """A task of a named topology, such as ``name__0_1``. It differs from the same task without the name."""

    topology: str

    def __new__(cls, topology: str, subtopology: int, partition: int) -> Self:
        """Make the id; the name comes first, as in Kafka's order."""
        task = super().__new__(cls, subtopology, partition)
        object.__setattr__(task, "topology", topology)
        return task

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a task id is immutable: cannot set {name!r}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamedTaskId) and self._key == other._key

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self._key)

    def __lt__(self, other: tuple[object, ...]) -> bool:
        return self._key < other._key if isinstance(other, NamedTaskId) else False

    @property
    def _key(self) -> tuple[str, int, int]:
        return self.topology, self.subtopology, self.partition

    def __reduce__(self) -> tuple[object, ...]:
        return NamedTaskId, self._key

    def __str__(self) -> str:
        return f"{self.topology}__{self.subtopology}_{self.partition}"

    def __repr__(self) -> str:
        return f"NamedTaskId({self.topology!r}, {self.subtopology}, {self.partition})"


def topology_name(task: TaskId, version: int) -> str:
    """Return the name of a task's topology, empty if it has none.

    Raises:
        TaskAssignmentException: there is a name, which the wire version (below 10) cannot carry.
    """
    name = task.topology if isinstance(task, NamedTaskId) else ""
    if name and version < 10:
        raise TaskAssignmentException(
            f"task {task} belongs to a named topology, which versions below 10 cannot carry; upgrade all members"
        )
    return name


def parse_task_id(text: str) -> TaskId:
    """Parse ``1_3`` or ``name__1_3``; raises ValueError."""
    name, separator, rest = text.rpartition("__")
    if not separator:
        return TaskId.parse(text)
    plain = TaskId.parse(rest)
    return NamedTaskId(name, plain.subtopology, plain.partition)
