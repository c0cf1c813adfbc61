"""Small shared values: frozen, ordered, without dependencies."""

from __future__ import annotations

import functools
import re
import uuid
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn, Self

__all__ = ["BatchId", "ProcessId", "TaskId", "TopicPartition", "is_topic_name"]

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_SIGN_BIT = 1 << 63
_LOW_64 = (1 << 64) - 1


def is_topic_name(name: str) -> bool:
    """Return whether Kafka accepts the name for a topic."""
    return _TOPIC.fullmatch(name) is not None and name not in {".", ".."}


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TaskId(NamedTuple):
    """A subtopology and a partition, written ``1_3``; ordered by both as integers."""

    subtopology: int
    partition: int

    def __str__(self) -> str:
        return f"{self.subtopology}_{self.partition}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``"1_3"``; raises ValueError for anything but two non-negative integers."""
        subtopology, separator, partition = text.partition("_")
        if not (separator and subtopology.isdecimal() and partition.isdecimal()):
            raise ValueError(f"not a task id: {text!r}; expected <subtopology>_<partition>, such as 0_3")
        return cls(int(subtopology), int(partition))


class BatchId(int):
    """The number of a micro-batch of one task, as ``foreachBatch`` passes it to its function. Immutable.

    The same task and number always have the same rows. Numbers of a task only grow; there may be gaps.

    Attributes:
        task: the task as text, such as ``"0_3"``.
        txn_app_id: stable name of application, ``foreachBatch`` and task: Delta's ``txnAppId``, with the number as
            ``txnVersion``.
    """

    task: str
    txn_app_id: str

    def __new__(cls, number: int, task: str, txn_app_id: str) -> Self:
        """Return the number with its attributes."""
        self = super().__new__(cls, number)
        self.__dict__.update(task=task, txn_app_id=txn_app_id)
        return self

    def __reduce__(self) -> tuple[type[Self], tuple[int, str, str]]:
        """Return the constructor's arguments."""
        return type(self), (int(self), self.task, self.txn_app_id)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"{name!r} of a batch id cannot be set")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{name!r} of a batch id cannot be deleted")


@functools.total_ordering
@dataclass(frozen=True, slots=True)
class ProcessId:
    """Identity of one process, kept in its state directory across restarts. See KIP-924.

    Ordered as Java orders UUIDs (both 64-bit halves *signed*): the order decides assignments, and the Java assignors
    are our oracle.
    """

    id: uuid.UUID

    @classmethod
    def random(cls) -> Self:
        """Return a new identity."""
        return cls(uuid.uuid4())

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a UUID; raises ValueError for anything else."""
        return cls(uuid.UUID(text))

    @property
    def _java_order(self) -> tuple[int, int]:
        high, low = self.id.int >> 64, self.id.int & _LOW_64
        # Flipping the sign bit makes unsigned comparison agree with Java's signed one.
        return high ^ _SIGN_BIT, low ^ _SIGN_BIT

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, ProcessId):
            return NotImplemented
        return self._java_order < other._java_order

    def __str__(self) -> str:
        return str(self.id)
