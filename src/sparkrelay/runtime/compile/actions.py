"""The end of a leg whose rows go to no topic: they are shown, or given to a function."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from sparkrelay.runtime.compile.catalyst import named, select_names
from sparkrelay.runtime.compile.row_steps import checked, visible
from sparkrelay.runtime.compile.schemas import arrow_schema, without_kafka
from sparkrelay.runtime.contract.specs import ActionSpec
from sparkrelay.runtime.worker.actions import act_leg
from sparkrelay.topology import ForeachBatch, Show

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from sparkrelay.topology import Foreach, Leg


def acted(  # noqa: PLR0917 - what is known of one step
    leg: Leg,
    action: Show | Foreach | ForeachBatch,
    rows: DataFrame,
    hidden: Sequence[str],
    step: Mapping[str, Any],
    changelog: str | None = None,
) -> tuple[DataFrame, functools.partial[Iterator[pa.RecordBatch]]]:
    """Return the rows that a leg's action wants, and its last step.

    Args:
        leg: the leg.
        action: what is done with its rows.
        rows: in front of it.
        hidden: the hidden columns that they carry.
        step: what every step of the leg needs to know, by field of ``StepSpec``.
        changelog: that the leg writes to before, and other legs behind it.
    """
    columns = without_kafka(visible(rows))
    more: dict[str, Any] = {**step, "behind_state": leg.store is not None, "changelog": changelog}
    if isinstance(action, Show):
        # Bytes are read as text, as those of Kafka's keys and values mostly are.
        texts = [F.make_valid_utf8(column.cast("string")) for column in named(columns.names)]
        shown = [text.alias(field.name) for text, field in zip(texts, columns, strict=True)]
        rows = checked(str(action.call_site), lambda: rows.select(*shown, *named(hidden)))
        text = StructType([StructField(field.name, StringType()) for field in columns])
        spec = ActionSpec(**more, columns=arrow_schema(text), rows=action.rows, width=action.width)
    elif isinstance(action, ForeachBatch):
        rows = select_names(rows, (*columns.names, *hidden))
        spec = ActionSpec(**more, columns=arrow_schema(columns), keeps=True)
    else:
        rows = select_names(rows, (*columns.names, *hidden))
        spec = ActionSpec(
            **more,
            columns=arrow_schema(columns),
            function=action.function,
            schema=columns.json(),
        )
    return rows, functools.partial(act_leg, spec)
