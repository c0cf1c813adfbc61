"""What must hold before a micro-batch is committed: its topics are still those by which the work was shared out.

Partitions that a source topic gets send keys to tasks without their state. A changelog that is created again lacks the
rows of the local state, and the next records would make it look complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparkrelay.errors import TimeoutException
from sparkrelay.runtime.tasks.replaced_topics import replaced_changelog
from sparkrelay.runtime.topics.grown_sources import grown_source
from sparkrelay.state.header import replaced_topics

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from sparkrelay.client.new_partitions import NewPartitions
    from sparkrelay.runtime.tasks.task import Task

__all__ = ["CommitChecks"]

#: A broker that is alive answers at once; the question was asked before the job.
_PARTITIONS_SECONDS: Final = 10.0


class CommitChecks:
    """Asks brokers. Belongs to the batch thread.

    Args:
        application_id: whose topics.
        new_partitions: asks whether source topics have grown; None where none can.
        topic_ids: asks for the ids of topics; None where none can be replaced.
        writes_by_id: returns whether all brokers take records for a topic by its id.
    """

    def __init__(
        self,
        application_id: str,
        *,
        new_partitions: NewPartitions | None = None,
        topic_ids: Callable[[Collection[str]], Mapping[str, str]] | None = None,
        writes_by_id: Callable[[], bool] = lambda: False,
    ) -> None:
        self._id = application_id
        self._new_partitions = new_partitions
        self._topic_ids = topic_ids
        self._writes_by_id = writes_by_id

    def begin(self, sources: Mapping[str, int]) -> None:
        """Have brokers look, while the job runs, for new partitions.

        Args:
            sources: partition count of each source topic whose keys the tasks have state of.
        """
        if self._new_partitions is not None and sources:
            self._new_partitions.ask(sources)

    def require(self, tasks: Collection[Task], sources: Mapping[str, int], *, by_name: bool = False) -> None:
        """Make sure, once the batch has written its records, that it may be committed.

        Args:
            tasks: that it is of.
            sources: as for :meth:`begin`.
            by_name: True if its records went to topics by their names, as they must with old transactions.

        Raises:
            StreamsException: a source topic has more partitions, or a changelog was deleted and created again.
            TimeoutException: no broker says whether that is so.
        """
        self._require_partitions(sources)
        if by_name or not self._writes_by_id():
            self.require_changelogs(tasks)

    def require_changelogs(self, tasks: Collection[Task]) -> None:
        """Make sure that the changelogs are still those that have the state of the tasks.

        Once the batch has written its records: if the ids are the same, the records are in the old topics. Brokers
        that take records by the id of a topic refuse the others themselves.

        Raises:
            StreamsException: one was deleted and created again.
            TimeoutException: one does not exist now; the next look for input waits for it.
        """
        topics = sorted({topic for task in tasks for topic in task.changelog_ids})
        if self._topic_ids is None or not topics:
            return
        now = self._topic_ids(topics)
        for task in tasks:
            if replaced := replaced_topics(task.changelog_ids, now):
                raise replaced_changelog(self._id, task, replaced)
        if missing := [topic for topic in topics if topic not in now]:
            raise TimeoutException(f"changelog {', '.join(map(repr, missing))} does not exist now; it is waited for")

    def _require_partitions(self, sources: Mapping[str, int]) -> None:
        # Brokers were asked when all records of the batch had been written. So what a producer knew when it chose the
        # partition of one of them shows in an answer.
        if self._new_partitions is None or not sources:
            return
        if grown := self._new_partitions.found(_PARTITIONS_SECONDS):
            raise grown_source(self._id, {topic: sources[topic] for topic in grown})
