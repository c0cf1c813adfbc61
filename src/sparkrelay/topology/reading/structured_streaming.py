"""Scripts for Structured Streaming: DataFrames over ``readStream``, and what ``writeStream`` says of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.classic.dataframe import DataFrame
from pyspark.sql.types import BinaryType, StringType

from sparkrelay.errors import TopologyException
from sparkrelay.records.formats import Raw, String
from sparkrelay.topology.reading.reader import Reader
from sparkrelay.topology.refusals import WHOLE_TABLE

if TYPE_CHECKING:
    from sparkrelay.topology.call_site import CallSite
    from sparkrelay.topology.reading.calls import Call
    from sparkrelay.topology.record import Record
    from sparkrelay.topology.rows import Rows

#: Columns of Spark's Kafka sink that are written.
_SINK: Final = ("key", "value", "headers")


def read_frame(record: Record, call: Call, frame: Any, mode: Any) -> Rows:
    """Return the rows of a DataFrame over ``readStream``; ``mode`` is the output mode of its query.

    Raises:
        TopologyException: it is none, or something in it cannot be done with streams.
    """
    known = getattr(frame, "_rows", None)
    if known is not None and frame._record is record:
        rows: Rows = known
        return rows
    if not isinstance(frame, DataFrame) or not frame.isStreaming:
        raise TopologyException(
            f"{call.where}: {call.method}() takes a DataFrame that begins with "
            f'spark.readStream.format("sparkrelay"), not {frame!r}'
        )
    return Reader(record, call, mode=str(mode).lower()).read(frame)


def added(frame: Any, topic: Any, mode: Any, name: Any, call_site: CallSite) -> Any:
    """Return rows, which go to a topic if one is given.

    Args:
        frame: the KStream or KTable.
        topic: its name; None: no topic.
        mode: ``"append"`` or ``"update"``.
        name: of the sink, or None.
        call_site: the user's line.

    Raises:
        TopologyException: an argument is of the wrong kind, or a column cannot be written.
    """
    if not isinstance(mode, str) or mode.lower() not in {"append", "update"}:
        raise TopologyException(
            f'{call_site}: add() takes outputMode="append" or "update", not {mode!r}; {WHOLE_TABLE}'
        )
    if frame._kind == "KTable" and mode.lower() == "append":
        frame = frame.outputMode("append")
    if topic is None:
        return frame
    kinds = {field.name: field.dataType for field in frame._rows.schema}
    if not isinstance(kinds.get("value"), BinaryType | StringType):
        frame.to(topic, name=name)
        return frame
    for column, instead in (("topic", "topic= says where rows go"), ("partition", "the key decides the partition")):
        if column in kinds:
            raise TopologyException(f"{call_site}: add() cannot go by the column {column!r}: drop() it; {instead}")
    # Spark's sink takes no others either.
    frame = frame.select(*(column for column in kinds if column in _SINK))
    form = String if isinstance(kinds["value"], StringType) else Raw
    key = "key" if "key" in kinds else None
    headers = "headers" if "headers" in kinds else None
    frame.to(topic, key=key, value=form("value"), headers=headers, name=name)
    return frame
