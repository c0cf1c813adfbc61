"""Owners of tasks as recorded in the group's offsets, and their transactional ids.

A stream thread has a transactional id for each subtopology and Spark partition of its executor. Whoever takes over a
task of a dead thread initializes these ids, which ends the transactions that it left open.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Self

from sparkrelay.runtime.contract.commit_notes import note_parts

#: Part of the note on a task's first input.
OWNER: Final = "owner"
#: Its value after the last owner released the task: no transaction is open.
RELEASED: Final = "none"
_OWNER: Final = re.compile(r"(?P<thread>[0-9A-Za-z-]{1,64})/(?P<spark_partitions>[1-9]\d{0,3})")


@dataclass(frozen=True, slots=True)
class Owner:
    """A stream thread (process id and number) as the writer of its tasks, in that many Spark partitions."""

    thread: str
    spark_partitions: int

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the owner that a text names; None if it is malformed."""
        found = _OWNER.fullmatch(text)
        return None if found is None else cls(found["thread"], int(found["spark_partitions"]))

    def __str__(self) -> str:
        return f"{self.thread}/{self.spark_partitions}"

    def transactional_id(self, application: str, subtopology: int, spark_partition: int) -> str:
        """Return the id under which a Spark partition writes for the tasks of a subtopology."""
        return f"{application}-{self.thread}-{subtopology}-{spark_partition}"

    def transactional_ids(self, application: str, subtopology: int) -> list[str]:
        """Return all ids under which a task of a subtopology may have been written."""
        return [self.transactional_id(application, subtopology, number) for number in range(self.spark_partitions)]


def noted_owner(text: str) -> str | None:
    """Return the owner in a note, possibly :data:`RELEASED`; None if there is none."""
    owner = note_parts(text).get(OWNER)
    return owner if isinstance(owner, str) else None


def writes_for(application: str, transactional_id: str) -> bool:
    """Return whether a transactional id belongs to a task owner of the application, in any release."""
    name = transactional_id.removeprefix(f"{application}-")
    by_task, by_thread = r"\d+_\d+", r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-\d+-\d+-\d+"
    return name != transactional_id and re.fullmatch(f"{by_task}|{by_thread}", name) is not None
