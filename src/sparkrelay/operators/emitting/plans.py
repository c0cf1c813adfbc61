"""The stateful steps of a topology that emit a stream, on DataFrames."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from sparkrelay.runtime.compile.row_steps import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from sparkrelay.operators.emitting.plan import EmittingPlan, Surroundings
    from sparkrelay.operators.emitting.run import EmittingRunner
    from sparkrelay.operators.emitting.step import EmittingStep
    from sparkrelay.topology import Leg


class EmittingSteps:
    """Has the plan of each step, which is in the step's folder.

    Args:
        around: the pipeline.
    """

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        #: By store.
        self._plans: dict[str, EmittingPlan[Any]] = {}
        self._columns: dict[str, StructType] = {}

    def _plan(self, step: EmittingStep) -> EmittingPlan[Any]:
        if step.store not in self._plans:
            folder = type(step).__module__.rpartition(".")[0]
            module = importlib.import_module(f"{folder}.plan")  # noqa: TID251 - a name of ours
            self._plans[step.store] = module.Plan(step, self._around)
        return self._plans[step.store]

    def known(self, step: EmittingStep) -> bool:
        """Return whether all that comes to a step can be built."""
        return self._plan(step).known

    def columns(self, step: EmittingStep, rows: DataFrame) -> StructType:
        """Return the columns behind a step; ``rows`` are in front of it."""
        if step.store not in self._columns:
            self._columns[step.store] = self._plan(step).columns(visible(rows))
        return self._columns[step.store]

    def computed(self, step: EmittingStep, before: Mapping[str, str]) -> Mapping[str, str]:
        """Return what columns behind a step are computed from; ``before`` is the same in front of it."""
        return self._plan(step).computed(before)

    def taken(self, step: EmittingStep, rows: DataFrame, read: frozenset[str], hidden: Iterable[str]) -> DataFrame:
        """Return the rows that a step takes in; see :meth:`EmittingPlan.taken`."""
        return self._plan(step).taken(step, rows, read, hidden)

    def runner(  # noqa: PLR0917 - what is known of one step
        self,
        leg: Leg,
        step: EmittingStep,
        taken: DataFrame,
        read: frozenset[str],
        computed: Mapping[str, str],
        fields: Mapping[str, Any],
    ) -> tuple[EmittingRunner, StructType]:
        """Return what workers run, and the columns that leave it; see :meth:`EmittingPlan.runner`."""
        return self._plan(step).runner(leg, taken, self._columns[step.store], read, computed, fields)
