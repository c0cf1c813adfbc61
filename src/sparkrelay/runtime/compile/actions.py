"""The end of a leg whose rows go to no topic: they are shown, or given to a function."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from sparkrelay.runtime.contract.specs import ActionSpec
from sparkrelay.runtime.worker.actions import act_leg
from sparkrelay.topology import ForeachBatch, Show
from sparkrelay.topology.schemas import arrow_schema, without_kafka

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from sparkrelay.topology import Foreach, Leg


def acted(
    leg: Leg,
    action: Show | Foreach | ForeachBatch,
    columns: StructType,
    step: Mapping[str, Any],
    changelog: str | None = None,
) -> functools.partial[Iterator[pa.RecordBatch]]:
    """Return a leg's last step.

    Args:
        leg: the leg.
        action: what is done with its rows.
        columns: of the rows, but for hidden ones.
        step: what every step of the leg needs to know, by field of ``StepSpec``.
        changelog: that the leg writes to before, and other legs behind it.
    """
    columns = without_kafka(columns)
    more: dict[str, Any] = {"columns": arrow_schema(columns)}
    if isinstance(action, Show):
        more |= {"rows": action.rows, "width": action.width}
    elif isinstance(action, ForeachBatch):
        more["keeps"] = True
    else:
        more |= {"function": action.function, "schema": columns.json()}
    behind_state = leg.store is not None
    return functools.partial(act_leg, ActionSpec(**step, **more, behind_state=behind_state, changelog=changelog))
