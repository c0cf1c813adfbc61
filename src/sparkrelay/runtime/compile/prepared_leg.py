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
        idle: True if Spark has found that no row gets to its end: it runs nothing of it, and nobody reports. Never so
            for a leg with a store, whose position must move on with the task's.
        output: Spark schema of the visible rows at the leg's end.
        state: what its stateful step does, if it has one.
        fetch: its first step, if its rows are the newest of a topic that is its changelog, too.
        computes: True if columns of its table are computed of aggregates, behind that step.
    """

    leg: Leg
    reports: DataFrame
    rebuild: str | None
    idle: bool
    output: StructType
    state: TableRunner | None = None
    computes: bool = False
    fetch: FetchSpec | None = None

    @property
    def steps(self) -> int:
        """How many Python steps of ours it has."""
        leg = self.leg
        behind_state = leg.emitting is not None or (
            leg.aggregation is not None
            and (self.computes or bool(leg.after) or leg.action is not None or leg.sends_changes)
        )
        settled = (leg.filters_table or leg.changes_of is not None) and not leg.sends_changes
        late = leg.late_for is not None
        return 2 + len(leg.lookups) + len(leg.collected) + behind_state + settled + late
