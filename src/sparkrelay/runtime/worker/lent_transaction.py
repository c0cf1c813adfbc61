"""A task's open transaction, lent to the worker that writes its records in a micro-batch."""

from __future__ import annotations

import dataclasses
import time
import uuid
from typing import TYPE_CHECKING, Final

from sparkrelay.client.produce import Flushed
from sparkrelay.errors import SparkRelayError
from sparkrelay.records.encode import NO_TIMESTAMP, ProducerState, encode as encode_records, next_sequence
from sparkrelay.runtime.contract import fault_points

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from sparkrelay.client.file_log import FileProducer
    from sparkrelay.client.produce import Producer
    from sparkrelay.runtime.contract.commands import LegReport, TaskCommand
    from sparkrelay.types import TopicPartition

__all__ = ["LentTransaction", "await_answers"]

#: Where a batch is full; one that is compressed is smaller, and topics take 1 MiB by default.
_BATCH_BYTES: Final = 1_000_000


class LentTransaction:
    """Produces one task's records under a lent producer id, keeping count of sequences.

    Args:
        producer: of this process.
        command: the task's.
        compression: of the records.
        sequences: next ones of the partitions that tasks of the same transaction have written to here.
    """

    def __init__(
        self,
        producer: Producer | FileProducer,
        command: TaskCommand,
        compression: str,
        sequences: dict[TopicPartition, int],
    ) -> None:
        self._producer = producer
        self._command = command
        self._compression = compression
        self._sequences = sequences
        #: Of the partitions that are written here: those of legs beside this one must not be said again as they were.
        self.next_sequences: dict[TopicPartition, int] = {}
        #: Sink topic of the user's -> the oldest timestamp written to it.
        self.oldest: dict[str, int] = {}
        #: Repartition topic -> the newest event time written to it, where that is gone by behind it.
        self.newest: dict[str, int] = {}
        producer.begin(command.transaction)

    def note_times(self, topic: str, timestamps: pa.Array) -> None:
        """Remember the oldest of the times that a sink topic of the user's gets."""
        numbers = timestamps.drop_null().to_numpy()
        # Without a timestamp, a record is as old as its segment's file.
        known = numbers[numbers != NO_TIMESTAMP]
        if known.size:
            oldest = int(known.min())
            self.oldest[topic] = min(oldest, self.oldest.get(topic, oldest))

    def note_event_times(self, topic: str, times: NDArray[np.int64], ahead_ms: int) -> None:
        """Remember the newest event time that a repartition topic gets; those far ahead of the clock do not count."""
        times = times[times <= int(time.time() * 1000) + ahead_ms]
        if times.size:
            newest = int(times.max())
            self.newest[topic] = max(newest, self.newest.get(topic, newest))

    def send(
        self,
        partition: TopicPartition,
        keys: pa.Array,
        values: pa.Array,
        timestamps: pa.Array | int,
        headers: pa.Array | None = None,
    ) -> None:
        """Write records to a partition, behind what was written to it before."""
        lent = self._command.transaction
        changelog_id = self._command.changelog_ids.get(partition.topic)
        topic_id = None if changelog_id is None else uuid.UUID(changelog_id)
        sequence = self._sequences.get(partition, self._command.sequences.get(partition, 0))
        for batch in encode_records(
            keys,
            values,
            timestamps=timestamps,
            headers=headers,
            producer=ProducerState(lent.producer_id, lent.epoch, sequence),
            transactional=True,
            compression=self._compression,
            max_batch_bytes=min(_BATCH_BYTES, self._producer.max_request_size),
        ):
            self._producer.send(
                partition,
                batch.data,
                transactional_id=lent.transactional_id,
                topic_id=topic_id,
                sender=self._command.task,
            )
            fault_points.reach("publish-after-send")
            sequence = next_sequence(sequence, batch.record_count)
        self.next_sequences[partition] = self._sequences[partition] = sequence


def await_answers(
    producer: Producer | FileProducer, reports: list[LegReport], sent: Mapping[int, TaskCommand], seconds: float
) -> None:
    """Wait until all that was sent is answered; what was refused goes into the reports.

    Args:
        producer: that has sent it.
        reports: of the tasks; those that have an error keep it.
        sent: index of a report -> the task that has sent something.
        seconds: how long the broker may take.
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
            reports[index] = dataclasses.replace(reports[index], error=reason)
