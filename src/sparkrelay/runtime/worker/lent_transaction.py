"""An open transaction lent to the worker that writes the records of all tasks of a Spark partition."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from sparkrelay.client.produce import Flushed
from sparkrelay.errors import SparkRelayError
from sparkrelay.records.batches.encode import ProducerState, encode_parts, next_sequence
from sparkrelay.runtime.contract import fault_points
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from sparkrelay.client.file_log import FileProducer
    from sparkrelay.client.produce import Producer
    from sparkrelay.runtime.contract.commands import LegReport, TaskCommand
    from sparkrelay.types import TaskId

#: A full batch; compression makes it smaller, and topics take 1 MiB by default.
_BATCH_BYTES: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Part:
    """Rows ``start`` to ``stop`` (exclusive) for one partition; ``task`` is None if they belong to several.

    ``topic_id`` is given if a new topic of that name must not be written to.
    """

    partition: TopicPartition
    start: int
    stop: int
    task: TaskId | None = None
    topic_id: str | None = None


class LentTransaction:
    """Produces records under a lent producer id, and counts sequence numbers.

    ``command`` is that of any task that writes in it here; ``written`` has the next sequence numbers of earlier writes.
    """

    def __init__(
        self,
        producer: Producer | FileProducer,
        command: TaskCommand,
        compression: str,
        written: Mapping[TopicPartition, int] = MappingProxyType({}),
    ) -> None:
        self._producer = producer
        self._lent = command.transaction
        self._known = command.sequences
        self._compression = compression
        self._topic_ids: dict[str, uuid.UUID] = {}
        #: Only of partitions written here: those of parallel legs must not be reported with old numbers.
        self.next_sequences: dict[TopicPartition, int] = dict(written)
        #: The task whose records made the last ``send`` fail, if known.
        self.blamed: TaskId | None = None
        producer.begin(command.transaction)

    def send(
        self,
        parts: Sequence[Part],
        keys: pa.Array,
        values: pa.Array,
        timestamps: pa.Array | int,
        headers: pa.Array | None = None,
    ) -> None:
        """Write rows to their partitions, after earlier ones; at most one part for each partition."""
        sequences = [self.next_sequences.get(part.partition, self._known.get(part.partition, 0)) for part in parts]
        encoded = encode_parts(
            keys,
            values,
            [
                (part.start, part.stop, ProducerState(self._lent.producer_id, self._lent.epoch, sequence))
                for part, sequence in zip(parts, sequences, strict=True)
            ],
            timestamps=timestamps,
            headers=headers,
            transactional=True,
            compression=self._compression,
            max_batch_bytes=min(_BATCH_BYTES, self._producer.max_request_size),
        )
        for part, sequence, batches in zip(parts, sequences, encoded, strict=True):
            topic_id = None if part.topic_id is None else self._topic_id(part.topic_id)
            self.blamed = part.task
            for batch in batches:
                self._producer.send(
                    part.partition,
                    batch.data,
                    transactional_id=self._lent.transactional_id,
                    topic_id=topic_id,
                    sender=part.task,
                )
                fault_points.reach("publish-after-send")
            self.next_sequences[part.partition] = next_sequence(sequence, part.stop - part.start)
        self.blamed = None

    def send_by_partition(  # noqa: PLR0917 - all of a record
        self,
        topic: str,
        targets: NDArray[np.int32],
        task: TaskId | None,
        keys: pa.Array,
        values: pa.Array,
        timestamps: pa.Array,
        headers: pa.Array | None = None,
    ) -> None:
        """Write at least one row to a topic, each to its partition in ``targets``, in order.

        ``task`` is the task of all rows, if it is one.
        """
        stops = [len(targets)]
        # Usually one partition, if the sink is keyed and partitioned like the source.
        if (targets != targets[0]).any():
            order = np.argsort(targets, kind="stable")
            targets, chosen = targets[order], pa.array(order)
            keys, values, timestamps = (column.take(chosen) for column in (keys, values, timestamps))
            headers = None if headers is None else headers.take(chosen)
            stops = [*(np.flatnonzero(np.diff(targets)) + 1).tolist(), *stops]
        parts = [
            Part(TopicPartition(topic, int(targets[start])), start, stop, task)
            for start, stop in zip([0, *stops[:-1]], stops, strict=True)
        ]
        self.send(parts, keys, values, timestamps, headers)

    def _topic_id(self, text: str) -> uuid.UUID:
        found = self._topic_ids.get(text)
        if found is None:
            found = self._topic_ids[text] = uuid.UUID(text)
        return found


def await_answers(
    producer: Producer | FileProducer, reports: list[LegReport], sent: Mapping[int, TaskCommand], seconds: float
) -> None:
    """Wait for all responses; refused records make errors in the reports, which keep existing ones.

    ``sent`` maps the index of a report to its task, for tasks that sent something.
    """
    try:
        flushed = producer.flush_each(seconds)
    except SparkRelayError as error:
        flushed = Flushed({}, dict.fromkeys((task.transaction.transactional_id for task in sent.values()), error))
    if not flushed.failed:
        return
    for index, task in sent.items():
        transactional_id = task.transaction.transactional_id
        reason = flushed.failed.get(transactional_id)
        blamed = flushed.blamed.get(transactional_id, task.task)
        if reason is not None and blamed == task.task and reports[index].error is None:
            reports[index] = reports[index]._replace(error=reason)
