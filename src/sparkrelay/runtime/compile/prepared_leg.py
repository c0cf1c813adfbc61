"""One leg as a prepared DataFrame."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from sparkrelay.operators.table.run import TableRunner
    from sparkrelay.runtime.contract.specs import FetchSpec
    from sparkrelay.topology import Leg


@dataclass(frozen=True, slots=True)
class PreparedLeg:
    """One leg, ready to run.

    Attributes:
        leg: the leg of the topology.
        reports: the DataFrame whose rows are the leg's reports; of a resident plan, which sends them, there are none.
        rebuild: why it must be built anew for each batch, or None.
        output: Spark schema of the visible rows at the leg's end.
        steps: how many steps of ours it has.
        not_resident: why it cannot be a part of a resident job, or None.
        state: what its stateful step does, if it keeps a table.
        fetch: its first step, if its rows are the newest of a topic that is its changelog, too.
    """

    leg: Leg
    reports: DataFrame
    rebuild: str | None
    output: StructType
    steps: int
    not_resident: str | None = None
    state: TableRunner | None = None
    fetch: FetchSpec | None = None
