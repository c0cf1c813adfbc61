"""Requests to the broker about the application's topics: partition counts, creation, offsets, purging."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final

from sparkrelay.client.admin import EARLIEST, LATEST, Admin, TopicSpec
from sparkrelay.client.features import TRANSACTION_VERSION
from sparkrelay.errors import KafkaException, StreamsException
from sparkrelay.runtime.topics.changes import changed_topics, new_stores
from sparkrelay.runtime.topics.layout import lay_out, require_noted_width
from sparkrelay.runtime.topics.retention import retention_ms
from sparkrelay.runtime.topics.source_changelogs import (
    require_no_other_changelogs,
    require_own_changelogs,
    require_rows_kept,
    topics_of_tables,
)
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from sparkrelay.client.group_requests import OffsetAndMetadata
    from sparkrelay.client.new_records import News
    from sparkrelay.config import StreamsConfig
    from sparkrelay.runtime.topics.layout import TaskLayout
    from sparkrelay.runtime.topics.topic_names import TopicNames
    from sparkrelay.topology import Topology

log = logging.getLogger(__name__)

#: Short, since it blocks the stream thread, and the next purge deletes the rest.
_PURGE_SECONDS: Final = 2.0
#: How long a known topic is looked for: a restarted broker may not know its topics for a moment.
_RETURN_SECONDS: Final = 3.0
_PAUSE_SECONDS: Final = 0.1


class Topics:
    """Reads and changes topics through one admin client. Thread-safe, one request at a time."""

    def __init__(self, admin: Admin, topology: Topology, names: TopicNames, config: StreamsConfig) -> None:
        self._admin = admin
        self._topology = topology
        self._names = names
        self._config = config
        self._reused = frozenset(topology.reused_topics.values())
        self._lock = threading.Lock()
        self._changes_logged = False
        #: Topics that the broker has listed before.
        self._seen: set[str] = set()

    def interrupt(self) -> None:
        """Interrupt the current request, and later ones, with WakeupException. Thread-safe."""
        self._admin.interrupt()

    def wakeup(self) -> None:
        """Have :meth:`await_records` check ``over``. Thread-safe."""
        self._admin.wakeup()

    def check_broker(self) -> None:
        """Log if the cluster uses the older transaction protocol, which costs more requests."""
        with self._lock:
            level = self._admin.features().get(TRANSACTION_VERSION, 0)
        if level < 2:
            log.info(
                "the cluster has transaction.version=%d: exactly once by the older protocol, with more requests per "
                "batch. With brokers of Kafka 4.0 or newer, 'kafka-features.sh --bootstrap-server HOST:PORT upgrade "
                "--feature transaction.version=2' saves them; it may be done while instances run",
                level,
            )

    def check_source_changelogs(self) -> None:
        """Warn of topics that are also changelogs and may have deleted rows of their table.

        Raises:
            StreamsException: one deletes rows that the table still has.
        """
        if not self._reused:
            return
        try:
            with self._lock:
                described = self._admin.describe_topics(sorted(self._reused))
        except KafkaException as error:
            if error.retriable:
                raise
            log.warning("retention of %s is unknown: %s", ", ".join(sorted(self._reused)), error)
        else:
            configs = {topic: found.configs for topic, found in described.items()}
            for sentence in require_rows_kept(self._topology, configs):
                log.warning("%s", sentence)
        partitions = [
            TopicPartition(topic, number)
            for topic, count in self.partition_counts(self._reused).items()
            for number in range(count)
        ]
        for partition, first in sorted(self.offsets(dict.fromkeys(partitions, EARLIEST)).items()):
            if first > 0:
                log.warning("%s begins at offset %d: once restored, its table lacks earlier rows", partition, first)

    def layout(self) -> TaskLayout:
        """Return tasks and internal topics by the current partition counts.

        Raises:
            UnknownTopicException: a source or sink topic does not exist.
            StreamsException: a partition count changed under existing state.
        """
        return self._laid_out(self._partitions())

    def prepare(self) -> TaskLayout:
        """Create missing internal topics and return the layout; for the group's leader."""
        partitions = self._partitions()
        layout = self._laid_out(partitions)
        missing = {
            topic.name: TopicSpec(topic.partitions, self._config.replication_factor, topic.configs)
            for topic in layout.internal_topics.values()
            if topic.name not in partitions
        }
        self._require_noted(layout)
        self._log_changes(layout, missing)
        if missing:
            log.info("creating internal topics: %s", ", ".join(sorted(missing)))
            with self._lock:
                self._admin.create_topics(missing, exist_ok=True)
        return layout

    def retention_ms(self, topic: str) -> int | None:
        """Return how many milliseconds after its timestamp a topic deletes a record; None if never."""
        with self._lock:
            return retention_ms(self._admin.describe_topics([topic])[topic].configs)

    def source_partitions(self) -> dict[str, int]:
        """Return the partition counts of the existing source topics of the user."""
        return self.partition_counts(self._topology.source_topics)

    def partition_counts(self, topics: Collection[str]) -> dict[str, int]:
        """Return the partition counts of the existing ones of ``topics``."""
        with self._lock:
            found = self._admin.partitions(sorted(topics))
        return {topic: len(numbers) for topic, numbers in found.items() if numbers}

    def racks(self, topics: Collection[str]) -> dict[TopicPartition, frozenset[str]]:
        """Return the racks of the partitions' replicas, if known for all of them."""
        with self._lock:
            return self._admin.replica_racks(sorted(topics))

    def end_offsets(
        self, partitions: Collection[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return read_committed end offsets, in one round trip; ``timeout`` in seconds."""
        return self.offsets(dict.fromkeys(partitions, LATEST), timeout=timeout)

    def await_records(
        self, positions: Mapping[TopicPartition, int], *, timeout: float, over: Callable[[], bool]
    ) -> News:
        """Wait until a partition has read_committed records after its position (the next offset), or for trouble.

        ``timeout`` is in seconds; ``over`` ends the wait if True, and is called first and after every :meth:`wakeup`.
        """
        with self._lock:
            return self._admin.await_records(positions, timeout=timeout, over=over)

    def ids(self, topics: Collection[str]) -> dict[str, str]:
        """Return the topics' ids, which change if a topic is recreated."""
        with self._lock:
            return self._admin.topic_ids(sorted(topics))

    def offsets(
        self, wanted: Mapping[TopicPartition, int], *, timeout: float | None = None, read_committed: bool = True
    ) -> dict[TopicPartition, int]:
        """Return offsets for EARLIEST or LATEST; ``timeout`` in seconds."""
        if not wanted:
            return {}
        with self._lock:
            return self._admin.list_offsets(dict(wanted), read_committed=read_committed, timeout=timeout)

    def changelog_ends(
        self, partitions: Collection[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offsets up to which copies may follow changelogs: read_committed ends; ``timeout`` in seconds.

        For a topic that a table reuses it is the group's committed offset: the rest is not yet in the table.
        """
        reused = {partition for partition in partitions if partition.topic in self._reused}
        ends = self.end_offsets([p for p in partitions if p not in reused], timeout=timeout)
        return ends | dict.fromkeys(reused, 0) | self.committed(reused, stable=False)

    def committed(self, partitions: Collection[TopicPartition], *, stable: bool = True) -> dict[TopicPartition, int]:
        """Return the group's committed offsets, without partitions that have none; see :meth:`commits`."""
        return {partition: commit.offset for partition, commit in self.commits(partitions, stable=stable).items()}

    def commits(
        self, partitions: Collection[TopicPartition], *, stable: bool = False
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the group's offsets with their metadata, without partitions that have none.

        ``stable`` waits for pending transactional commits.
        """
        if not partitions:
            return {}
        with self._lock:
            return self._admin.commits(self._config.application_id, list(partitions), stable=stable)

    def group_clients(self) -> frozenset[str]:
        """Return the client ids of the group's members."""
        with self._lock:
            members = self._admin.describe_group(self._config.application_id).members
        return frozenset(member.client_id for member in members)

    def purge(self, before: Mapping[TopicPartition, int]) -> None:
        """Delete records before the given offsets, without waiting for silent brokers."""
        if before:
            with self._lock:
                self._admin.delete_records(dict(before), timeout=_PURGE_SECONDS)

    def _log_changes(self, layout: TaskLayout, missing: Collection[str]) -> None:
        """Log, once for each instance, how the pipeline has changed since it last ran."""
        if self._changes_logged:
            return
        with self._lock:
            topics = self._admin.list_topics()
        changes = [*changed_topics(layout, self._names, topics)]
        if missing:
            inputs = [partition for shape in layout.tasks.values() for partition in shape.inputs]
            changes += new_stores(layout, missing, self.committed(inputs))
        self._changes_logged = True
        for sentence in changes:
            log.warning("%s", sentence)

    def _require_noted(self, layout: TaskLayout) -> None:
        """Reject changes of tables that contradict the notes in earlier commits."""
        topics = topics_of_tables(self._topology)
        inputs = {p for shape in layout.tasks.values() for p in shape.inputs if p.topic in topics}
        wanted = inputs.union(*(shape.source_changelogs for shape in layout.tasks.values()))
        if not wanted:
            return
        noted = {partition: commit.metadata for partition, commit in self.commits(sorted(wanted)).items()}
        require_own_changelogs(self._topology, self._names, {p: text for p, text in noted.items() if p in inputs})
        require_noted_width(self._config.application_id, layout, noted)

    @property
    def _dead_letters(self) -> str | None:
        return self._config.errors_dead_letter_queue_topic_name

    def _laid_out(self, partitions: Mapping[str, int]) -> TaskLayout:
        return lay_out(self._topology, self._names, partitions, dead_letters=self._dead_letters)

    def _partitions(self) -> dict[str, int]:
        legs = self._topology.legs
        wanted = set(self._names.sources(*legs))
        wanted |= {topic for leg in self._topology.global_tables for topic in leg.source.topics}
        wanted |= set() if self._dead_letters is None else {self._dead_letters}
        wanted |= {self._names(leg.sink.topic, leg.sink.internal) for leg in legs if leg.sink is not None}
        wanted |= {
            self._names.changelog(store) for part in self._topology.subtopologies for store in part.logged_stores
        }
        # Should not exist.
        others = {self._names.changelog(store) for store in self._topology.reused_topics}
        found = self._describe({*wanted, *others, self._names.reset_marker})
        if self._names.reset_marker in found:
            raise StreamsException(
                f"application {self._names.application_id!r} is being reset, or sparkrelay reset was interrupted: "
                f"topic {self._names.reset_marker!r} exists. Wait for the reset, or run it again to its end: "
                f"sparkrelay reset --application-id {self._names.application_id} --execute ..."
            )
        require_no_other_changelogs(self._topology, self._names, found)
        return found

    def _describe(self, names: Collection[str]) -> dict[str, int]:
        """Return the partition counts of existing topics."""
        deadline = time.monotonic() + _RETURN_SECONDS
        while True:
            with self._lock:
                described = self._admin.partitions(sorted(names))
            found = {name: len(partitions) for name, partitions in described.items() if partitions is not None}
            self._seen.update(found)
            gone = self._seen.intersection(names) - found.keys()
            if not gone or time.monotonic() >= deadline:
                return found
            time.sleep(_PAUSE_SECONDS)
