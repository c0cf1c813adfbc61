"""Changed state on its way to changelogs, produced in a lent transaction."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from sparkrelay.errors import SparkRelayError
from sparkrelay.runtime.contract import fault_points
from sparkrelay.runtime.contract.failure_marks import WorkerFailure
from sparkrelay.runtime.contract.store_descriptions import describe_store
from sparkrelay.runtime.worker import connections
from sparkrelay.runtime.worker.lent_transaction import LentTransaction, Part
from sparkrelay.state.changelog import SCHEMA_KEY, Marker, encode_changelog, encode_marker
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sparkrelay.runtime.contract.commands import TaskCommand
    from sparkrelay.runtime.contract.specs import StoreSpec
    from sparkrelay.state import Applied

#: Most bytes of changed state that are written together.
_CHANGED_BYTES: Final = 1 << 20


def write_changelogs(state: StoreSpec, changed: Iterable[tuple[TaskCommand, Applied]]) -> None:
    """Write the changed state of tasks, and wait for all responses. Raises WorkerFailure."""
    try:
        producer = connections.producer(state.client)
        transaction: LentTransaction | None = None
        for some in _gathered(changed):
            transaction = transaction or LentTransaction(producer, some[0][0], state.compression)
            send_changelogs(transaction, state, some)
        fault_points.reach("changelog-before-flush")
        failed = producer.flush_each(state.flush_seconds).failed
        if failed:
            raise next(iter(failed.values()))
        fault_points.reach("changelog-after-flush")
    except SparkRelayError as error:
        connections.forget_producer(state.client)
        raise WorkerFailure(error, state.failure_key) from None


def send_changelogs(
    transaction: LentTransaction, state: StoreSpec, changed: Sequence[tuple[TaskCommand, Applied]]
) -> None:
    """Send the changed state of tasks, each followed by a marker with the positions of its input.

    If a task's command asks for it, the description of the store precedes the marker.
    """
    if state.changelog is None:
        return
    ends = [_ends(state, command, applied) for command, applied in changed]
    keys, values = encode_changelog(
        pa.concat_arrays([applied.keys for _, applied in changed]),
        pa.concat_arrays([applied.values for _, applied in changed]),
    )
    rows = len(keys)
    keys, values = (
        pa.concat_arrays([column, pa.array([end[place] for some in ends for end in some], pa.binary())])
        for place, column in enumerate((keys, values))
    )
    parts, order, row, end, stop = [], [], 0, rows, 0
    for (command, applied), its_ends in zip(changed, ends, strict=True):
        order += [np.arange(row, row + len(applied.keys)), np.arange(end, end + len(its_ends))]
        row, end = row + len(applied.keys), end + len(its_ends)
        start, stop = stop, stop + len(applied.keys) + len(its_ends)
        partition = TopicPartition(state.changelog, command.task.partition)
        parts.append(Part(partition, start, stop, command.task, command.changelog_ids.get(state.changelog)))
    if len(changed) > 1:
        chosen = pa.array(np.concatenate(order))
        keys, values = keys.take(chosen), values.take(chosen)
    transaction.send(parts, keys, values, int(time.time() * 1000))


def _gathered(changed: Iterable[tuple[TaskCommand, Applied]]) -> Iterator[list[tuple[TaskCommand, Applied]]]:
    """Yield tasks with few changes together; large states need not be in memory twice."""
    some: list[tuple[TaskCommand, Applied]] = []
    size = 0
    for task, applied in changed:
        takes = applied.keys.nbytes + applied.values.nbytes
        if some and size + takes > _CHANGED_BYTES:
            yield some
            some, size = [], 0
        some.append((task, applied))
        size += takes
    if some:
        yield some


def _ends(state: StoreSpec, command: TaskCommand, applied: Applied) -> list[tuple[bytes, bytes]]:
    """Return the records after a task's rows in its changelog."""
    entry = applied.entry
    marker = encode_marker(
        Marker(
            batch=command.batch,
            positions=command.positions_after,
            contents=state.contents,
            watermark=entry.watermark,
            expired=entry.expired,
            sources=entry.sources,
            topics=command.topic_ids_of(command.positions),
        )
    )
    return [(SCHEMA_KEY, describe_store(state)), marker] if state.changelog in command.describe else [marker]
