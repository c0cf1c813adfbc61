"""When the windows of a grouping are over: what ``withWatermark`` and ``F.window`` say together."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from sparkrelay.errors import TopologyException
from sparkrelay.runtime.compile.catalyst import jvm
from sparkrelay.runtime.compile.row_steps import checked
from sparkrelay.runtime.contract.specs import WatermarkSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField

    from sparkrelay.topology import Aggregation

__all__ = ["watermark_spec"]

log = logging.getLogger(__name__)

#: What Spark notes of a column that ``F.window`` has made.
_WINDOW = "spark.timeWindow"


def watermark_spec(aggregation: Aggregation, projected: DataFrame, keys: Sequence[StructField]) -> WatermarkSpec | None:
    """Return when the windows of a grouping are over; None if they never are.

    Args:
        aggregation: the grouping.
        projected: its keys and arguments.
        keys: its keys.

    Raises:
        TopologyException: only final rows are wanted, and there is no window.
    """
    windows = [field.name for field in keys if projected.schema[field.name].metadata.get(_WINDOW)]
    where = str(aggregation.call_site)
    if not windows:
        if aggregation.final:
            raise TopologyException(
                f'{where}: outputMode("append") gives the final row of each window, and this grouping has none: '
                'group by F.window("time", "1 hour") too'
            )
        if aggregation.watermark is not None:
            log.warning("%s: without F.window among its columns, the groups of a watermark never end", where)
        return None
    if aggregation.watermark is None:
        log.warning(
            "%s: the windows of store %r are kept for ever; put withWatermark() before groupBy() to have them end",
            where,
            aggregation.store,
        )
        return None
    return WatermarkSpec(_delay_ms(aggregation, projected, where), windows[0], aggregation.final)


def _delay_ms(aggregation: Aggregation, rows: DataFrame, where: str) -> int:
    """Return the delay in milliseconds, as Spark reads it."""
    assert aggregation.watermark is not None
    column, delay = aggregation.watermark
    some = rows.select(F.lit(None).cast("timestamp").alias("time"))
    node: Any = checked(where, lambda: some.withWatermark("time", delay))._jdf.queryExecution().logical()
    millis = int(jvm().org.apache.spark.sql.catalyst.plans.logical.EventTimeWatermark.getDelayMs(node.delay()))
    if millis < 0:
        raise TopologyException(f"{where}: the delay of withWatermark({column!r}, {delay!r}) is negative")
    return millis
