"""Who owns a task, as the group's offsets say it, and under which transactional ids an owner writes.

A stream thread has a transactional id for each subtopology and Spark partition of its executor. Whoever takes over one
of its tasks after it has died opens these ids, which ends the transactions that it has left.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Self

from sparkrelay.runtime.contract.commit_notes import note_parts

__all__ = ["OWNER", "RELEASED", "Owner", "noted_owner", "writes_for"]

#: The part of a note, on a task's first input.
OWNER: Final = "owner"
#: What it is where the last owner has let the task go: nothing of it is under way.
RELEASED: Final = "none"
_OWNER: Final = re.compile(r"(?P<thread>[0-9A-Za-z-]{1,64})/(?P<spark_partitions>[1-9]\d{0,3})")


@dataclass(frozen=True, slots=True)
class Owner:
    """A stream thread, as the one that writes for tasks.

    Attributes:
        thread: process id and number of the thread.
        spark_partitions: over how many its tasks are spread.
    """

    thread: str
    spark_partitions: int

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the owner that a text names; None where it names none."""
        found = _OWNER.fullmatch(text)
        return None if found is None else cls(found["thread"], int(found["spark_partitions"]))

    def __str__(self) -> str:
        return f"{self.thread}/{self.spark_partitions}"

    def transactional_id(self, application: str, subtopology: int, spark_partition: int) -> str:
        """Return the id of what a Spark partition writes for the tasks of a subtopology."""
        return f"{application}-{self.thread}-{subtopology}-{spark_partition}"

    def transactional_ids(self, application: str, subtopology: int) -> list[str]:
        """Return the ids that a task of a subtopology may have been written for under."""
        return [self.transactional_id(application, subtopology, number) for number in range(self.spark_partitions)]


def noted_owner(text: str) -> str | None:
    """Return what a note says of the owner, :data:`RELEASED` included; None if it says nothing."""
    said = note_parts(text).get(OWNER)
    return said if isinstance(said, str) else None


def writes_for(application: str, transactional_id: str) -> bool:
    """Return whether a transactional id is that of an owner of the application's tasks, of any release."""
    name = transactional_id.removeprefix(f"{application}-")
    by_task, by_thread = r"\d+_\d+", r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-\d+-\d+-\d+"
    return name != transactional_id and re.fullmatch(f"{by_task}|{by_thread}", name) is not None
