"""The prepared DataFrames of an assignment: which legs run together, and in which waves.

Legs of one batch run as one Spark job, their union. Two legs of a subtopology that write the same topic run one after
the other ("waves"): they share the task's sequence numbers for that topic, and the second must know where the first
stopped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from pyspark.sql import DataFrame

    from sparkrelay.runtime.legs import LegCompiler, LegPlan
    from sparkrelay.topology import Leg

__all__ = ["Plans", "assign_waves"]


class Plans:
    """The legs of a process, built once and run for every batch."""

    def __init__(
        self, compiler: LegCompiler, legs: Iterable[Leg], union: Callable[[list[DataFrame]], DataFrame]
    ) -> None:
        self._compiler = compiler
        self._union = union
        self._plans: dict[str, LegPlan] = {leg.id: compiler.build(leg) for leg in legs}
        self._waves = assign_waves([plan.leg for plan in self._plans.values()])
        self._unions: dict[tuple[str, ...], DataFrame] = {}

    def waves(self, subtopologies: Collection[int], topics: Collection[str]) -> list[DataFrame]:
        """Return the jobs for a batch that has work in these subtopologies and input topics, in order."""
        jobs = []
        for wave in self._waves:
            legs = [
                leg
                for leg in wave
                if leg.subtopology in subtopologies and not self._compiler.source_topics(leg).isdisjoint(topics)
            ]
            if legs:
                jobs.append(self._job(legs))
        return jobs

    def _job(self, legs: list[Leg]) -> DataFrame:
        if any(self._plans[leg.id].rebuild for leg in legs):
            return self._union([self._fresh(leg) for leg in legs])
        key = tuple(leg.id for leg in legs)
        if key not in self._unions:
            self._unions[key] = self._union([self._plans[leg.id].reports for leg in legs])
        return self._unions[key]

    def _fresh(self, leg: Leg) -> DataFrame:
        plan = self._plans[leg.id]
        return plan.reports if plan.rebuild is None else self._compiler.build(leg).reports


def assign_waves(legs: Iterable[Leg]) -> list[list[Leg]]:
    """Put each leg into the first wave in which no leg of its subtopology writes the same topic."""
    waves: list[list[Leg]] = []
    for leg in legs:
        target = None if leg.sink is None else (leg.subtopology, leg.sink.topic, leg.sink.internal)
        for wave in waves:
            taken = {(o.subtopology, o.sink.topic, o.sink.internal) for o in wave if o.sink is not None}
            if target is None or target not in taken:
                wave.append(leg)
                break
        else:
            waves.append([leg])
    return waves
