"""Task ids of Kafka Streams' named topologies, which only the wire knows.

We never write them ourselves, but a Java member may, and version 10 and later carry them; decoding must not lose them.
"""

from __future__ import annotations

from typing import Self

from sparkrelay.types import TaskId

__all__ = ["NamedTaskId", "parse_task_id"]


class NamedTaskId(TaskId):
    """A task of a named topology, written ``name__0_1``. It equals no task without that name."""

    topology: str

    def __new__(cls, topology: str, subtopology: int, partition: int) -> Self:
        """Make the id; the name comes first, as it does in Kafka's order."""
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


def parse_task_id(text: str) -> TaskId:
    """Read ``1_3`` or ``name__1_3``.

    Raises:
        ValueError: the text is neither.
    """
    name, separator, rest = text.rpartition("__")
    if not separator:
        return TaskId.parse(text)
    plain = TaskId.parse(rest)
    return NamedTaskId(name, plain.subtopology, plain.partition)
