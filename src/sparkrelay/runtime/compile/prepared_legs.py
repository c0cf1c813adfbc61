"""The prepared DataFrames of an assignment: which legs run together, and in which waves.

Legs of one batch run as one Spark job, their union. Two legs of a subtopology that write the same topic run one after
the other ("waves"): they share the task's sequence numbers for that topic, and the second must know where the first
stopped. A leg that reads a store of another one, to look things up or to go on from its changes, runs behind that one,
and sees what the same batch has brought.
"""

from __future__ import annotations

import functools
import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from sparkrelay.errors import SerializationException, SparkRelayError
from sparkrelay.operators.latest.run import LatestRunner
from sparkrelay.runtime.contract.specs import SourceChangelog
from sparkrelay.topology import ForeachBatch, Show
from sparkrelay.topology.schemas import without_kafka

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from sparkrelay.operators.table.run import TableRunner
    from sparkrelay.records.framing import WriterSchemas
    from sparkrelay.runtime.compile.legs import LegCompiler
    from sparkrelay.runtime.compile.prepared_leg import PreparedLeg
    from sparkrelay.runtime.spark.collected_frames import Collect
    from sparkrelay.topology import Leg
    from sparkrelay.types import TaskId

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Wave:
    """One job of a batch.

    Attributes:
        frame: its rows are the legs' reports.
        legs: leg that reports -> its subtopology and source topics.
    """

    frame: DataFrame
    legs: Mapping[str, tuple[int, frozenset[str]]]

    def reports(self, inputs: Mapping[TaskId, Collection[str]]) -> set[tuple[str, TaskId]]:
        """Return the leg and task of every report that is to come; ``inputs`` are the topics each task reads now."""
        return {
            (leg, task)
            for leg, (subtopology, topics) in self.legs.items()
            for task, read in inputs.items()
            if task.subtopology == subtopology and not topics.isdisjoint(read)
        }


@dataclass(frozen=True, slots=True)
class ResidentLegs:
    """The legs that can run in one resident Spark job.

    Attributes:
        frame: the job, one Spark partition a leg; None if no leg can.
        steps: leg -> how many steps of ours it has, each of which connects to the driver.
        refused: leg that cannot -> why.
    """

    frame: DataFrame | None
    steps: Mapping[str, int]
    refused: Mapping[str, str]


class PreparedLegs:
    """The legs of a stream thread, built once and run for every batch."""

    def __init__(self, compiler: LegCompiler, legs: Iterable[Leg]) -> None:
        self._compiler = compiler
        legs = tuple(legs)
        #: The version of what each leg's plan knows of the schemas of its records.
        self._known_schemas = {leg.id: _known_schemas(leg) for leg in legs}
        self._plans: dict[str, PreparedLeg] = {leg.id: compiler.build(leg) for leg in legs}
        self._speakers = self._may_speak()
        writing = (
            {leg for may in self._speakers.values() for leg in may} if compiler.writes_dead_letters else set[str]()
        )
        self._waves = assign_waves([plan.leg for plan in self._plans.values()], writing)
        self._unions: dict[tuple[str, ...], DataFrame] = {}
        self._resident: ResidentLegs | None = None
        #: Legs whose plans have older rows of a DataFrame, or other schemas, than there are.
        self._outdated: set[str] = set()
        self._collected = [plan.leg for plan in self._plans.values() if plan.leg.collected]
        self._building = threading.Lock()

    @property
    def subtopologies(self) -> frozenset[int]:
        """Those of the legs."""
        return frozenset(plan.leg.subtopology for plan in self._plans.values())

    def _may_speak(self) -> dict[Any, list[str]]:
        """Return, for each input topic, the legs that may report its skipped records: the first one that runs does."""
        found: dict[Any, list[PreparedLeg]] = {}
        for plan in sorted(self._plans.values(), key=lambda plan: plan.rebuild is not None):
            leg, source = plan.leg, plan.leg.source
            if leg.goes_on:
                continue
            for topic in self._compiler.source_topics(leg):
                # What one of two formats cannot read the other may.
                key = leg.subtopology, topic, str(source.key), str(source.value), source.timestamp
                found.setdefault(key, []).append(plan)
        return {
            key: [plan.leg.id for plan in (plans if plans[0].rebuild is not None else plans[:1])]
            for key, plans in found.items()
        }

    def skips_of(self, legs: Collection[str]) -> frozenset[tuple[str, str]]:
        """Return which of the legs that run in a micro-batch speaks for the skipped records of each topic."""
        speaking = ((key[1], next((leg for leg in may if leg in legs), None)) for key, may in self._speakers.items())
        return frozenset((leg, topic) for topic, leg in speaking if leg is not None)

    def state(self, store: str) -> TableRunner | None:
        """Return what the stateful step does that keeps a store; None if there is no such store."""
        specs = (plan.state for plan in self._plans.values())
        return next((spec for spec in specs if spec is not None and spec.store == store), None)

    def source_changelogs(self) -> dict[str, SourceChangelog]:
        """Return how each store is restored whose changelog is the topic that its table is read from."""
        return {
            plan.state.store: SourceChangelog(plan.fetch, plan.state.stored_rows, plan.state.contents)
            for plan in self._plans.values()
            if plan.fetch is not None and isinstance(plan.state, LatestRunner)
        }

    def output(self, leg: str) -> StructType:
        """Return the schema of the visible rows at a leg's end."""
        return self._plans[leg].output

    def shows(self, leg: str) -> tuple[list[str], int]:
        """Return the columns, and how many rows of a micro-batch are printed, of a leg that shows its rows."""
        plan = self._plans[leg]
        assert isinstance(plan.leg.action, Show), f"leg {leg} shows nothing"
        return without_kafka(plan.output).names, plan.leg.action.rows

    def batch_function(self, leg: str) -> tuple[ForeachBatch, StructType]:
        """Return what is called with the rows of a leg that has ``foreachBatch``, and their schema."""
        plan = self._plans[leg]
        assert isinstance(plan.leg.action, ForeachBatch), f"leg {leg} gives its rows to no function"
        return plan.leg.action, without_kafka(plan.output)

    def resident(self) -> ResidentLegs:
        """Return the legs that can stay; they are built when they are first asked for, on whichever thread."""
        with self._building:
            if self._resident is None:
                self._resident = self._build_resident()
            return self._resident

    def learn(self, numbers: Collection[int]) -> None:
        """Have the schemas fetched by which records were written; the next micro-batch knows them.

        Raises:
            SchemaRegistryException: the registry does not answer.
            SerializationException: no leg reads such records, or all know these schemas.
        """
        learned = set()
        for plan in self._plans.values():
            for writers in _writers(plan.leg):
                writers.learn(numbers)
            if _known_schemas(plan.leg) > self._known_schemas[plan.leg.id]:
                learned.add(plan.leg.id)
        if not learned:
            raise SerializationException(
                f"the schemas {', '.join(map(str, numbers))} cannot be fetched from the registry"
            )
        self._outdated |= learned

    def renew(self, subtopologies: Collection[int], collect: Collect) -> bool:
        """Have the DataFrames collected that are too old for a micro-batch; return whether any plan is another now.

        Numbers that the schema registry did not have a while ago are forgotten, so that it is asked for them again.

        Args:
            subtopologies: in which it has work.
            collect: evaluates a DataFrame.

        Raises:
            SparkRelayError: one could not be collected for too long.
        """
        legs = [leg for leg in self._collected if leg.subtopology in subtopologies]
        if legs:
            self._outdated |= self._compiler.renew(legs, collect)
        for plan in self._plans.values():
            for writers in _writers(plan.leg):
                writers.forget()
            # Another thread may have found out, or forgotten, what is in the plans of this one.
            if _known_schemas(plan.leg) > self._known_schemas[plan.leg.id]:
                self._outdated.add(plan.leg.id)
        if not self._outdated:
            return False
        for leg in [plan.leg for plan in self._plans.values()]:
            if leg.id in self._outdated:
                # Before it is built: another thread may get more of them meanwhile.
                known = _known_schemas(leg)
                self._plans[leg.id] = self._compiler.build(leg)
                self._known_schemas[leg.id] = known
        self._unions.clear()
        with self._building:
            self._resident = None
        self._outdated.clear()
        return True

    def describe(self) -> str:
        """Return in words which legs pass small micro-batches through a resident job, and why others do not."""
        found = self.resident()
        lines = ["Small micro-batches:"]
        stays = f"pass through one resident Spark job, if {len(found.steps)} slots are free"
        for leg in self._plans:
            if leg in found.steps:
                lines.append(f"   {leg}: {stays}")
            else:
                lines.append(f"   {leg}: a Spark job each, because {found.refused[leg]}")
        return "\n".join(lines)

    def _build_resident(self) -> ResidentLegs:
        built, refused = [], {}
        for leg, plan in self._plans.items():
            found = self._built_resident(plan)
            if isinstance(found, str):
                refused[leg] = found
            else:
                built.append(found)
        steps = {plan.leg.id: plan.steps for plan in built}
        return ResidentLegs(_union(built) if built else None, steps, refused)

    def _built_resident(self, plan: PreparedLeg) -> PreparedLeg | str:
        try:
            return self._compiler.build_resident(plan)
        except (SparkRelayError, PySparkException, Py4JError) as error:
            # What runs in jobs of its own must not end because it cannot run in one that stays.
            log.debug("leg %s cannot be built for a resident job", plan.leg.id, exc_info=True)
            return f"it cannot be built so: {str(error).splitlines()[0]}"

    def waves(self, subtopologies: Collection[int], topics: Collection[str]) -> list[Wave]:
        """Return the jobs for a batch that has work in these subtopologies and input topics, in order."""
        return self._jobs(
            lambda leg: leg.subtopology in subtopologies and not self._compiler.source_topics(leg).isdisjoint(topics)
        )

    def all_waves(self) -> list[Wave]:
        """Return the jobs for a batch that has work everywhere, in order."""
        return self._jobs(lambda _: True)

    def _jobs(self, wanted: Callable[[Leg], bool]) -> list[Wave]:
        jobs = []
        for wave in self._waves:
            legs = filter(wanted, wave)
            plans = [*map(self._fresh, legs)]
            if plans:
                jobs.append(Wave(self._frame(plans), {plan.leg.id: self._inputs(plan.leg) for plan in plans}))
        return jobs

    def _frame(self, plans: list[PreparedLeg]) -> DataFrame:
        if any(plan.rebuild for plan in plans):
            return _union(plans)
        key = tuple(plan.leg.id for plan in plans)
        if key not in self._unions:
            self._unions[key] = _union(plans)
        return self._unions[key]

    def _fresh(self, leg: Leg) -> PreparedLeg:
        plan = self._plans[leg.id]
        return plan if plan.rebuild is None else self._compiler.build(leg)

    def _inputs(self, leg: Leg) -> tuple[int, frozenset[str]]:
        return leg.subtopology, self._compiler.source_topics(leg)


def _writers(leg: Leg) -> list[WriterSchemas]:
    forms = (leg.source.key, leg.source.value)
    return [writers for form in forms if (writers := getattr(form, "writers", None)) is not None]


def _known_schemas(leg: Leg) -> int:
    return sum(writers.version for writers in _writers(leg))


def _union(plans: Iterable[PreparedLeg]) -> DataFrame:
    return functools.reduce(lambda left, right: left.union(right), (plan.reports for plan in plans))


def assign_waves(legs: Iterable[Leg], dead_letters: Collection[str] = ()) -> list[list[Leg]]:
    """Put each leg into the earliest wave behind those that write its stores.

    Legs of a subtopology that write to the same topic are in different waves.

    Args:
        legs: in the order in which they are built.
        dead_letters: those that write to the dead letter topic, too.
    """
    waves: list[list[Leg]] = []

    def written(leg: Leg) -> set[tuple[int, str, bool] | tuple[int]]:
        sink = () if leg.sink is None else ((leg.subtopology, leg.sink.topic, leg.sink.internal),)
        return {*sink, *(((leg.subtopology,),) if leg.id in dead_letters else ())}

    for leg in legs:
        first = 0
        for number, wave in enumerate(waves):
            if any(o.store is not None and (o.store in leg.reads_stores or o.store == leg.store) for o in wave):
                first = number + 1
        for wave in waves[first:]:
            if all(written(leg).isdisjoint(written(other)) for other in wave):
                wave.append(leg)
                break
        else:
            waves.append([leg])
    return waves
