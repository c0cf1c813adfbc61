"""The columns that travel with every row and that users do not see.

A row must know its task (its input partition) and its timestamp when it reaches the stateful step or the sink,
whatever the user's steps selected in between. Flat columns, not a struct: Spark moves them more cheaply.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "CHANGE",
    "EVENT_MICROS",
    "EVENT_TIME",
    "KEY",
    "MARKER",
    "PARTITION",
    "PARTITION_TIME",
    "PREFIX",
    "SOURCE",
    "TIMESTAMP",
    "TOMBSTONE",
    "WINDOW",
]

PREFIX: Final = "__sparkrelay_"

#: int: the task's partition.
PARTITION: Final = PREFIX + "partition"
#: bigint: the record's timestamp, ms since the epoch.
TIMESTAMP: Final = PREFIX + "timestamp"
#: binary: the message key, or the grouping key after ``agg``.
KEY: Final = PREFIX + "key"
#: boolean: the message had a null value (a tombstone), which a stateless leg forwards as one.
TOMBSTONE: Final = PREFIX + "tombstone"
#: bigint: the row's event time where there is a watermark, ms since the epoch; null: it has none.
EVENT_TIME: Final = PREFIX + "event_time"
#: bigint: the row's event time in front of a join of streams, microseconds since the epoch; null: it has none.
EVENT_MICROS: Final = PREFIX + "event_micros"
#: bigint: the newest timestamp so far of its input partition's rows in the micro-batch: a row's place in time among
#: those of other partitions, as Kafka Streams takes records of several ones.
PARTITION_TIME: Final = PREFIX + "partition_time"
#: int: which of the leg's source topics the row is of, where there are several and a watermark.
SOURCE: Final = PREFIX + "source"
#: int: of a filtered table: 1 for a new row, -1 for the row that it replaces, or that is deleted.
CHANGE: Final = PREFIX + "change"
#: struct of start and end: the window of a row that goes on only if it is late.
WINDOW: Final = PREFIX + "window"
#: binary: in a job that stays, null for rows and the command for the row that ends a micro-batch.
MARKER: Final = PREFIX + "marker"
