"""The state of an instance: plain copies, with the names of Kafka Streams' ThreadMetadata and TaskMetadata.

The runtime makes them without stopping the threads that they describe, so two numbers of a task may be a moment apart.
Publishers need nothing else of the runtime.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping

    from sparkrelay.observe.counters import Totals
    from sparkrelay.types import TopicPartition


@dataclass(frozen=True, slots=True)
class TaskMetadata:
    """A task of this instance.

    Attributes:
        task_id: such as ``0_3``.
        state: created, restoring, running or standby.
        topic_partitions: input partitions.
        committed_offsets: input partition -> next offset to process; empty unless running.
        end_offsets: input partition -> end of the log when last listed; empty unless running.
        lag: input records left for a running task, changelog offsets for any other; None if unknown.
        changelog_offsets: changelog partition -> offset that the local copy has reached.
        changelog_end_offsets: changelog partition -> offset that it must reach; empty for a running task, which writes
            the changelog, and if unknown.
        changelog_lag: changelog offsets that the copy lacks; 0 for a running task; None if unknown.
        replay_began: when the restore or the standby began; None for a running task.
    """

    task_id: str
    state: str
    topic_partitions: frozenset[TopicPartition]
    committed_offsets: Mapping[TopicPartition, int]
    end_offsets: Mapping[TopicPartition, int]
    lag: int | None
    changelog_offsets: Mapping[TopicPartition, int]
    changelog_end_offsets: Mapping[TopicPartition, int]
    changelog_lag: int | None
    replay_began: dt.datetime | None


@dataclass(frozen=True, slots=True)
class ThreadMetadata:
    """A stream thread of this instance.

    Attributes:
        thread_name: as in logs and in Spark's UI.
        thread_state: CREATED, STARTING, PARTITIONS_REVOKED (expelled, rejoining), PARTITIONS_ASSIGNED, RUNNING,
            PENDING_SHUTDOWN or DEAD.
        process_id: the process whose state directory it uses.
        executor_id: the Spark executor of the process; None for one in the driver (``local[N]``).
        consumer_client_id: ``client.id`` of its group member.
        member_id: given by the broker; empty before it has joined.
        restore_consumer_client_id: ``client.id`` of the connection that lists the changelogs' ends.
        producer_client_ids: ``client.id`` of the connection that opens and ends transactions.
        admin_client_id: ``client.id`` of the connection for topics and offsets.
        active_tasks: tasks that it runs, or will run once they are restored.
        standby_tasks: tasks of which it keeps a copy.
    """

    thread_name: str
    thread_state: str
    process_id: str
    executor_id: str | None
    consumer_client_id: str
    member_id: str
    restore_consumer_client_id: str
    producer_client_ids: frozenset[str]
    admin_client_id: str
    active_tasks: tuple[TaskMetadata, ...]
    standby_tasks: tuple[TaskMetadata, ...]


@dataclass(frozen=True, slots=True)
class InstanceSnapshot:
    """A whole instance.

    Attributes:
        application_id: its application.
        state: its ``KafkaStreams.state``.
        alive: whether it works or is about to, without an obstacle that needs help: no executor, or a Spark job that
            does not end.
        ready: whether all of its tasks run.
        trouble: what ended it or currently obstructs its work; None if nothing does.
        threads: its stream threads.
        totals: its counters.
    """

    application_id: str
    state: str
    alive: bool
    ready: bool
    trouble: str | None
    threads: tuple[ThreadMetadata, ...]
    totals: Totals
