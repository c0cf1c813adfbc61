"""Checks before a micro-batch is committed: its topics are those that the work was assigned by.

New partitions of a source topic send keys to tasks without their state. A changelog that was created again lacks the
rows of the local state, and further records would make it look complete.
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

#: Brokers were asked before the job, and answer at once.
_PARTITIONS_SECONDS: Final = 10.0


class CommitChecks:
    """Asks brokers (None: nothing can change). Belongs to the batch thread."""

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
        """Ask brokers, while the job runs, for new partitions of these source topics (with expected counts)."""
        if self._new_partitions is not None and sources:
            self._new_partitions.ask(sources)

    def require(self, tasks: Collection[Task], sources: Mapping[str, int], *, by_name: bool = False) -> None:
        """Check that a batch may be committed once its records are written; ``by_name``: not by topic ids.

        Raises StreamsException if a source topic has more partitions, or a changelog was deleted and created again, and
        TimeoutException if no broker answers, or a changelog does not exist now.
        """
        self._require_partitions(sources)
        if by_name or not self._writes_by_id():
            self.require_changelogs(tasks)

    def require_changelogs(self, tasks: Collection[Task]) -> None:
        """Check that changelogs have not been replaced; raises like :meth:`require`.

        Run after the records are written: with unchanged ids, they are in the old topics. Brokers that accept records
        by topic id refuse the others themselves.
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
        # The answers are from after all records were written, so they include what producers knew when they chose
        # partitions.
        if self._new_partitions is None or not sources:
            return
        if grown := self._new_partitions.found(_PARTITIONS_SECONDS):
            raise grown_source(self._id, {topic: sources[topic] for topic in grown})
