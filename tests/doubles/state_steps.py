"""What a stateful step is given: its spec, and a command for one task."""

import pyarrow as pa

from sparkrelay.client.transactions import ProducerIdentity
from sparkrelay.runtime.contract import hidden_columns
from sparkrelay.runtime.contract.commands import TaskCommand
from sparkrelay.runtime.contract.specs import StateSpec
from sparkrelay.types import TaskId, TopicPartition

HIDDEN = [(hidden_columns.PARTITION, pa.int32()), (hidden_columns.TIMESTAMP, pa.int64())]


def state_spec(keys, arguments, results, aggregates, **more):
    """Return a spec that groups `orders` by those columns (name, type); `more` are further fields of it."""
    return StateSpec(
        leg="leg",
        subtopology=0,
        topics=("orders",),
        spark_partitions=1,
        client={},
        store="counts",
        changelog="app-counts-changelog",
        keys=tuple(name for name, _ in keys),
        aggregates=aggregates,
        input=pa.schema([*keys, *arguments, *HIDDEN, *more.pop("times", ())]),
        output=pa.schema([*keys, *results, *HIDDEN, (hidden_columns.KEY, pa.binary())]),
        contents="counts",
        compression="none",
        flush_seconds=1.0,
        map_limit=1 << 24,
        failure_key=b"",
        **more,
    )


def task_command(partition, batch=1, span=None, directory=None, tries=1):
    """Return the command of a task for a batch; `span` is what it takes of its partition of `orders`."""
    return TaskCommand(
        task=TaskId(0, partition),
        batch=batch,
        committed=batch - 1,
        task_epoch=0,
        directory=directory,
        transaction=ProducerIdentity("app-thread-0-0", 1, 0),
        ranges={} if span is None else {TopicPartition("orders", partition): span},
        positions={},
        tries=tries,
    )
