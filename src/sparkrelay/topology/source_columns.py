"""The columns of a topic: what its formats decode into, and Kafka's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import StructField, StructType

from sparkrelay import hidden_columns
from sparkrelay.errors import TopologyException
from sparkrelay.topology.schemas import KAFKA_FIELDS, check_event_time, format_fields

if TYPE_CHECKING:
    from sparkrelay.records.formats import Format
    from sparkrelay.topology.nodes import SourceNode


def source_columns(source: SourceNode) -> StructType:
    """Return every column that a source can give.

    Raises:
        TopologyException: a column cannot be, or its event time is not among them.
    """
    where = str(source.call_site)
    if source.value is None and source.key is None:
        fields = list(KAFKA_FIELDS)
    else:
        fields = [*_decoded_fields(source.key, source.value, where), StructField("kafka", StructType(KAFKA_FIELDS))]
    if source.timestamp is not None:
        times = [field for field in fields if field.name == source.timestamp]
        if not times:
            raise TopologyException(
                f"{where}: timestamp={source.timestamp!r} is none of the columns that are read: "
                f"{', '.join(field.name for field in fields)}"
            )
        check_event_time(times[0], where)
    return StructType(fields)


def _decoded_fields(key: Format | None, value: Format | None, where: str) -> list[StructField]:
    """Return the columns that a key's and a value's format decode into.

    Raises:
        TopologyException: both have a column of one name and different types, or a name is reserved.
    """
    fields = {} if value is None else {field.name: field for field in format_fields(value, "value", where)}
    if key is not None:
        # The key's column wins over a field of the same name and type: it is what decides the partition.
        for field in format_fields(key, "key", where):
            same = fields.get(field.name)
            if same is not None and same.dataType != field.dataType:
                raise TopologyException(
                    f"{where}: column {field.name!r} is both the message key ({field.dataType.simpleString()}) and a "
                    f"field of the value ({same.dataType.simpleString()}), and would hide it; give the key's column "
                    'another name, such as key=String("message_key")'
                )
            fields[field.name] = field
    if "kafka" in fields:
        raise TopologyException(f"{where}: a field named 'kafka' clashes with the struct of Kafka's own columns")
    for name in fields:
        if name.startswith(hidden_columns.PREFIX):
            raise TopologyException(f"{where}: the column name {name!r} is reserved")
    return list(fields.values())
