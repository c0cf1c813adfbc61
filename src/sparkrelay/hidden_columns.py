"""The columns that travel with every row and are hidden from users.

A row must know its task (its input partition) and its timestamp when it reaches the stateful step or the sink, whatever
the user's steps selected in between. Flat columns, not a struct: Spark moves them more cheaply.
"""

from __future__ import annotations

from typing import Final

PREFIX: Final = "__sparkrelay_"

#: int: the task's partition.
PARTITION: Final = PREFIX + "partition"
#: bigint: the record's timestamp, ms since the epoch.
TIMESTAMP: Final = PREFIX + "timestamp"
#: binary: the message key, or the grouping key after ``agg``.
KEY: Final = PREFIX + "key"
#: boolean: the message is a tombstone (null value), which a stateless leg forwards as one.
TOMBSTONE: Final = PREFIX + "tombstone"
#: bigint: the row's event time if there is a watermark, ms since the epoch; null: none.
EVENT_TIME: Final = PREFIX + "event_time"
#: bigint: the row's event time before a stream-stream join, microseconds since the epoch; null: none.
EVENT_MICROS: Final = PREFIX + "event_micros"
#: bigint: the newest timestamp so far in its input partition. Orders rows of several partitions as Kafka Streams does.
PARTITION_TIME: Final = PREFIX + "partition_time"
#: int: index of the row's source topic, if the leg has several and a watermark.
SOURCE: Final = PREFIX + "source"
#: int, in a filtered table: 1 for a new row, -1 for the row that it replaces or that is deleted.
CHANGE: Final = PREFIX + "change"
#: struct of start and end: the window of a row that is forwarded only if it is late.
WINDOW: Final = PREFIX + "window"
#: binary, in a resident job: null for rows, the command for the row that ends a micro-batch.
MARKER: Final = PREFIX + "marker"
