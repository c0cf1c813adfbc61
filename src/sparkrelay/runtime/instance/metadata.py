"""Snapshots of an instance's threads and tasks for its operator. Thread-safe."""

from __future__ import annotations

import datetime as dt
from types import MappingProxyType
from typing import TYPE_CHECKING

from sparkrelay.observe.snapshot import TaskMetadata, ThreadMetadata
from sparkrelay.runtime.contract.client_settings import admin_settings, consumer_settings
from sparkrelay.runtime.tasks.ranges import behind
from sparkrelay.runtime.tasks.task_state import TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sparkrelay.config import StreamsConfig
    from sparkrelay.runtime.process.process_threads import ProcessThreads
    from sparkrelay.runtime.tasks.restore_progress import RestoreProgress
    from sparkrelay.runtime.tasks.task import Task
    from sparkrelay.runtime.thread.stream_thread import StreamThread
    from sparkrelay.types import TaskId, TopicPartition

__all__ = ["TaskMetadata", "ThreadMetadata", "describe_tasks", "describe_thread"]


def describe_thread(thread: StreamThread, process: ProcessThreads, config: StreamsConfig) -> ThreadMetadata:
    """Describe the current state of a process's thread and its tasks."""
    executor = process.target.executor
    progress = thread.progress
    active, standby = describe_tasks(thread.tasks.all(), progress.ends, progress.copies())
    return ThreadMetadata(
        thread_name=thread.name,
        thread_state=thread.state,
        process_id=process.process_id,
        executor_id=None if executor is None else executor.id,
        consumer_client_id=str(consumer_settings(config, thread.name)["client.id"]),
        member_id=thread.member_id,
        restore_consumer_client_id=str(admin_settings(config, f"{thread.name}-restore")["client.id"]),
        producer_client_ids=frozenset([str(admin_settings(config, f"{thread.name}-transactions")["client.id"])]),
        admin_client_id=str(admin_settings(config, thread.name)["client.id"]),
        active_tasks=active,
        standby_tasks=standby,
    )


def describe_tasks(
    tasks: Iterable[Task], ends: Mapping[TopicPartition, int], copies: Mapping[TaskId, RestoreProgress]
) -> tuple[tuple[TaskMetadata, ...], tuple[TaskMetadata, ...]]:
    """Return the current active and standby tasks, each in order.

    Args:
        tasks: a copy of the thread's tasks.
        ends: ends of the input partitions, as last read.
        copies: progress of restoring copies.
    """
    active: list[TaskMetadata] = []
    standby: list[TaskMetadata] = []
    for task in sorted(tasks, key=lambda task: task.id):
        # Read once: the task's thread may change it.
        state = task.state
        described = _described(task, state, ends, copies.get(task.id))
        (standby if state is TaskState.STANDBY else active).append(described)
    return tuple(active), tuple(standby)


def _described(
    task: Task, state: TaskState, ends: Mapping[TopicPartition, int], copy: RestoreProgress | None
) -> TaskMetadata:
    committed: dict[TopicPartition, int] = {}
    known: dict[TopicPartition, int] = {}
    offsets, changelog_ends, began = dict(task.copy.offsets), dict(task.copy.ends), None
    lag, changelog_lag = None, None
    if state is TaskState.RUNNING:
        committed, changelog_ends, changelog_lag = dict(task.position.offsets), {}, 0
        known = {partition: max(ends[partition], committed[partition]) for partition in committed if partition in ends}
        if len(known) == len(committed):
            lag = sum(end - committed[partition] for partition, end in known.items())
    else:
        if copy is not None and state is not TaskState.CREATED:
            offsets, changelog_ends, lag = dict(copy.offsets or task.copy.offsets), dict(copy.ends), copy.lag
            began = dt.datetime.fromtimestamp(copy.began_at, dt.UTC)
        elif not task.stateful:
            lag = 0
        elif changelog_ends:
            lag = behind(offsets, changelog_ends)
        changelog_lag = lag
    return TaskMetadata(
        task_id=str(task.id),
        state=state.value,
        topic_partitions=frozenset(task.inputs),
        committed_offsets=MappingProxyType(committed),
        end_offsets=MappingProxyType(known),
        lag=lag,
        changelog_offsets=MappingProxyType(offsets),
        changelog_end_offsets=MappingProxyType(changelog_ends),
        changelog_lag=changelog_lag,
        replay_began=began,
    )
