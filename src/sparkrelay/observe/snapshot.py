"""What an instance shows of itself: plain copies, with the names of Kafka Streams' ThreadMetadata and TaskMetadata.

The runtime makes them, and knows how to make them without stopping the threads whose work they describe: two numbers of
one task may be a moment apart. Who publishes them needs nothing else of the runtime.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping

    from sparkrelay.observe.counters import Totals
    from sparkrelay.types import TopicPartition

__all__ = ["InstanceSnapshot", "TaskMetadata", "ThreadMetadata"]


@dataclass(frozen=True, slots=True)
class TaskMetadata:
    """One task of this instance.

    Attributes:
        task_id: such as ``0_3``.
        state: created, restoring, running or standby.
        topic_partitions: its input partitions.
        committed_offsets: input partition -> next offset, all before it is processed and committed; empty unless it
            is running.
        end_offsets: input partition -> end of the log, as of the last look; empty unless it is running.
        lag: what there is still to do: records of input for a running task, changelog offsets for any other. None
            while that is not known.
        changelog_offsets: changelog partition -> offset up to which the local copy has it.
        changelog_end_offsets: changelog partition -> where the copy is to get to; empty for a running task, which
            writes it, and while it is not known.
        changelog_lag: changelog offsets that the copy lacks; 0 for a running task; None while that is not known.
        replay_began: when the restore, or keeping the standby, began; None for a running task.
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
    """One stream thread of this instance.

    Attributes:
        thread_name: its name, in logs and in Spark's UI.
        thread_state: CREATED, STARTING, PARTITIONS_REVOKED (expelled, joining anew), PARTITIONS_ASSIGNED, RUNNING,
            PENDING_SHUTDOWN or DEAD.
        process_id: the process whose state directory it uses.
        executor_id: the Spark executor that the process is; None for one in the driver (``local[N]``).
        consumer_client_id: ``client.id`` of its group member.
        member_id: the name that the broker gave the member; empty before it has joined.
        restore_consumer_client_id: ``client.id`` of the connection that looks for the changelogs' ends.
        producer_client_ids: ``client.id`` of the connection that opens and ends transactions.
        admin_client_id: ``client.id`` of the connection that asks for topics and offsets.
        active_tasks: the tasks that it runs, or is to run once they are restored.
        standby_tasks: the tasks of which it keeps a copy.
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
        alive: True if that is a state in which it does, or is about to do, its work, and nothing keeps it from that
            which does not pass of itself: no executor, or a Spark job that does not end.
        ready: True if each of its own tasks runs.
        trouble: what ended it, or what hinders its work just now; None if nothing does.
        threads: its stream threads.
        totals: what it has counted since it was made.
    """

    application_id: str
    state: str
    alive: bool
    ready: bool
    trouble: str | None
    threads: tuple[ThreadMetadata, ...]
    totals: Totals
