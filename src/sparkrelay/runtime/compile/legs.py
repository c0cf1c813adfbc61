"""From a leg of the topology to one prepared DataFrame.

    placed source -> fetch (Arrow) -> the user's steps (Catalyst) -> state (Arrow) -> steps after it -> publish (Arrow)

Steps of ours that follow one another are one Python stage (``flow``). A plan is made once for an assignment and run for
every micro-batch; ranges, batch numbers and producer ids travel beside it (``commands``).
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import BooleanType, StructField, StructType

from sparkrelay import hidden_columns
from sparkrelay.operators.collected_join.plan import CollectedJoins
from sparkrelay.operators.emitting.plan import Surroundings, plan_of
from sparkrelay.operators.latest.run import LatestRunner
from sparkrelay.operators.lookup.plan import lookup_spec
from sparkrelay.operators.table_join.plan import answers_of, joined_tables
from sparkrelay.runtime.compile.actions import acted
from sparkrelay.runtime.compile.carried_columns import (
    CHANGES,
    EMITTED,
    SETTLED,
    carried_columns,
    emitted_columns,
    joined_columns,
)
from sparkrelay.runtime.compile.deletions import Deletions
from sparkrelay.runtime.compile.flow import Flow
from sparkrelay.runtime.compile.job_kinds import BulkJob, ResidentJob
from sparkrelay.runtime.compile.needs import Needs
from sparkrelay.runtime.compile.prepared_leg import PreparedLeg
from sparkrelay.runtime.compile.publish_spec import changes_spec, late_spec, publish_spec, settle_spec, shared_changelog
from sparkrelay.runtime.compile.source_columns import fetch_spec, topics_read
from sparkrelay.runtime.compile.state_spec import state_spec
from sparkrelay.runtime.compile.step_fields import StepFields
from sparkrelay.runtime.contract.resident import Role
from sparkrelay.runtime.spark.session import missing_for_resident_jobs
from sparkrelay.runtime.worker.fetch import fetch_leg
from sparkrelay.runtime.worker.publish import publish_leg
from sparkrelay.topology.building.row_checks import check_deletions_pass
from sparkrelay.topology.parts import Lookup, Segment
from sparkrelay.topology.schemas import hidden_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sparkrelay.config import StreamsConfig
    from sparkrelay.operators.emitting.step import EmittingStep
    from sparkrelay.operators.table.run import TableRunner
    from sparkrelay.runtime.contract.specs import FetchSpec
    from sparkrelay.runtime.spark.collected_frames import Collect, CollectedFrames
    from sparkrelay.runtime.spark.executor_target import ExecutorTarget
    from sparkrelay.runtime.topics.topic_names import TopicNames
    from sparkrelay.topology import Aggregation, Leg
    from sparkrelay.topology.parts import Collected, Part

    Step = Callable[..., Any]


class LegCompiler:
    """Builds the DataFrames of a topology's legs on one process."""

    def __init__(
        self,
        target: ExecutorTarget,
        config: StreamsConfig,
        legs: Sequence[Leg],
        *,
        names: TopicNames,
        client: Mapping[str, Any],
        frames: CollectedFrames,
    ) -> None:
        """Take what every leg shares.

        Args:
            target: where the legs run.
            config: the instance's settings.
            legs: every leg of the topology.
            names: Kafka's names of the topology's topics.
            client: settings of the workers' Kafka connections.
            frames: the DataFrames that the instance collects.
        """
        self.target = target
        self.config = config
        self.writes_dead_letters = config.errors_dead_letter_queue_topic_name is not None
        self.legs = tuple(legs)
        self.names = names
        self.around = Surroundings(self.legs, names, config)
        self.needs = Needs(self.legs, self.around)
        self.deletions = Deletions(self.legs)
        self.fields = StepFields(target, config, names, client)
        self.joins = CollectedJoins(frames, target, config.max_poll_interval_ms / 1000)
        #: store -> what the step does that keeps it
        self.states: dict[str, TableRunner] = {}
        self._keepers = {leg.aggregation.store: leg for leg in reversed(self.legs) if leg.aggregation is not None}
        self._bulk = BulkJob(target)
        self._resident = ResidentJob(target)

    def source_topics(self, leg: Leg) -> frozenset[str]:
        """Return Kafka's names of a leg's source topics."""
        return frozenset(topics_read(leg, self.names))

    def build(self, leg: Leg) -> PreparedLeg:
        """Build one leg; those that read what another one keeps come behind it.

        Raises:
            TopologyException: a step is not possible; names the user's line.
        """
        return _Building(self, leg, self._bulk).prepared()

    def state(self, store: str) -> TableRunner:
        """Return what the step does that keeps a store."""
        if store not in self.states:
            self.build(self._keepers[store])
        return self.states[store]

    def renew(self, legs: Sequence[Leg], collect: Collect) -> frozenset[str]:
        """Have the DataFrames of legs collected that are too old; return which legs must be built again for that.

        Raises:
            SparkRelayError: one could not be collected for too long.
        """
        changed = self.joins.renew(legs, collect)
        return frozenset(leg.id for leg in self.legs if not changed.isdisjoint(leg.collected))

    def build_resident(self, plan: PreparedLeg) -> PreparedLeg | str:
        """Build a leg again as a part of a resident job; return why it cannot be one.

        Args:
            plan: what :meth:`build` made of it.
        """
        reason = plan.rebuild or missing_for_resident_jobs(self.target.spark, plan.steps) or plan.not_resident
        return reason or _Building(self, plan.leg, self._resident).prepared()


class _Building:
    """Builds one leg."""

    def __init__(self, compiler: LegCompiler, leg: Leg, job: BulkJob) -> None:
        self._of = compiler
        self._leg = leg
        self._job = job
        #: What every step of the leg needs to know, by field of ``StepSpec``; and how a step of it writes to topics.
        self._step = compiler.fields.of(leg, job.spark_partitions)
        self._writing = {**self._step, **compiler.fields.writing}
        self._state: TableRunner | None = None
        self._fetch: FetchSpec | None = None

    def prepared(self) -> PreparedLeg:
        """Return the leg."""
        leg = self._leg
        if leg.goes_on:
            flow, emitted = self._goes_on()
            return self._behind_table(flow, emitted)
        flow = self._source()
        passing = self._of.deletions.pass_through(leg)
        if passing:
            for part in leg.before:
                if isinstance(part, Segment):
                    check_deletions_pass(part.rows)
        flow = self._applied(flow, leg.before, tombstones=passing)
        if leg.emitting is not None:
            return self._behind_table(self._emitted(flow, leg.emitting), EMITTED)
        if leg.aggregation is not None:
            return self._stateful(flow, leg.aggregation)
        if leg.late_for is not None:
            spec, output = late_spec(leg, flow.visible, leg.late_for.store, self._step)
            flow = self._between(flow, spec, output)
        return self._ended(self._of.deletions.keyed(leg, flow))

    # -- from the source to the stateful step ---------------------------------------------------------------------

    def _source(self) -> Flow:
        leg = self._leg
        read = self._of.needs.source(leg)
        hidden = hidden_fields(carried_columns(leg))
        columns = StructType([*(field for field in leg.source.columns if field.name in read), *hidden])
        shipped = self._of.needs.shipped(leg.source.topics[0]) if leg.source.internal else None
        spec = fetch_spec(leg, columns, shipped, legs=self._of.legs, step=self._step, **self._of.fields.decoding(leg))
        if leg.reused_topic is not None:
            self._fetch = spec
        step = functools.partial(fetch_leg, spec)
        return Flow.begin(self._job, leg.id, step, self._job.names(leg.id, Role.SOURCE), columns)

    def _applied(self, flow: Flow, parts: Sequence[Part], *, tombstones: bool = False) -> Flow:
        """Return the rows behind parts that do not change state."""
        for part in parts:
            needed = self._of.needs.behind(self._leg, part)
            if isinstance(part, Segment):
                flow = flow.through(part, needed, flow.hidden, tombstones=tombstones)
            elif isinstance(part, Lookup):
                flow = self._looked_up(flow, part, needed)
            else:
                flow = self._joined_with_frame(flow, part, needed, tombstones=tombstones)
        return flow

    def _looked_up(self, flow: Flow, lookup: Lookup, needed: frozenset[str]) -> Flow:
        """Return the rows with what the table holds for them; what nobody reads behind it goes neither in nor out."""
        carried = [name for name in flow.hidden if name not in lookup.times]
        found = StructField(lookup.found, BooleanType(), nullable=False)
        kept = [field for field in (*flow.visible, *lookup.given, found) if field.name in needed]
        output = StructType([*kept, *(flow.columns[name] for name in carried)])
        flow = flow.only({*lookup.columns, *(needed & {*flow.visible.names}), *flow.hidden})
        spec = lookup_spec(lookup, output, state=self._of.state(lookup.store), step=self._step)
        return self._between(flow, spec, output)

    def _joined_with_frame(self, flow: Flow, join: Collected, needed: frozenset[str], *, tombstones: bool) -> Flow:
        flow = self._of.deletions.keyed(self._leg, flow)
        carried = tuple(name for name in flow.hidden)
        flow = flow.only({*join.keys, *(needed & {*flow.visible.names}), *carried})
        spec, output = self._of.joins.prepare(join, flow.columns, needed, carried, tombstones_pass=tombstones)
        return self._between(flow, spec, output)

    # -- the stateful step ----------------------------------------------------------------------------------------

    def _emitted(self, flow: Flow, step: EmittingStep) -> Flow:
        left_out = {hidden_columns.PARTITION_TIME, hidden_columns.TOMBSTONE}
        flow = flow.only({name for name in flow.columns.names if name not in left_out})
        read = self._of.needs.behind(self._leg, step)
        runner, output = plan_of(step, self._of.around).runner(self._leg, flow.columns, read, self._writing)
        return self._between(flow, runner, output)

    def _stateful(self, flow: Flow, aggregation: Aggregation) -> PreparedLeg:
        leg = self._leg
        runner = state_spec(
            leg,
            aggregation,
            flow.columns,
            legs=self._of.legs,
            names=self._of.names,
            config=self._of.config,
            step=self._writing,
        )
        if (answers := answers_of(aggregation.answers, self._of.states)) is not None:
            assert isinstance(runner, LatestRunner), "answers come into a table of newest rows"
            runner = replace(runner, answers=answers)
        self._state = self._of.states[aggregation.store] = runner
        if not (leg.of_table or leg.after or leg.sends_changes) and leg.action is None:
            columns = aggregation.columns
            publish = self._publish_spec(columns, self._output(columns))
            return self._prepared(flow, functools.partial(runner.published, publish), self._output(columns))
        emitted = emitted_columns(leg, aggregation)
        output = StructType([*aggregation.columns, *hidden_fields(emitted)])
        return self._behind_table(self._between(flow, runner, output), emitted)

    # -- behind it ------------------------------------------------------------------------------------------------

    def _goes_on(self) -> tuple[Flow, tuple[str, ...]]:
        """Return what has changed in stores that other legs keep."""
        leg = self._leg
        names = self._job.names(leg.id, Role.SOURCE)
        if leg.table_join is not None:
            spec, columns = joined_tables(leg, leg.table_join, self._of.states, self._step)
            return Flow.begin(self._job, leg.id, spec, names, columns), joined_columns(leg)
        assert leg.changes_of is not None, "a leg that reads no topic goes on from a store"
        assert leg.changed is not None, "of which the columns are known"
        contents = self._of.state(leg.changes_of).contents
        changes, columns = changes_spec(leg.changes_of, leg.changed, contents, self._step)
        return Flow.begin(self._job, leg.id, changes, names, columns), CHANGES

    def _behind_table(self, flow: Flow, emitted: tuple[str, ...]) -> PreparedLeg:
        """Return the leg, given the changed rows of its table, or what its stateful step emits.

        Args:
            flow: the rows.
            emitted: their hidden columns.
        """
        leg = self._leg
        flow = self._applied(flow, leg.of_table)
        if hidden_columns.CHANGE in emitted and not leg.sends_changes:
            # New rows, and deletions, are what a table's filters make of the changes of its rows.
            spec, settled = settle_spec(leg, flow.visible, self._step)
            flow = self._between(flow, spec, settled)
            emitted = SETTLED
        return self._ended(self._applied(flow, leg.after))

    def _ended(self, flow: Flow) -> PreparedLeg:
        """Return the leg, given its last rows."""
        leg = self._leg
        if leg.action is not None:
            spec = acted(leg, leg.action, flow.visible, self._step, shared_changelog(leg, self._of.names))
            return self._prepared(flow, spec, flow.visible)
        columns = flow.visible
        if leg.sends_changes:
            columns = StructType([*columns, flow.columns[hidden_columns.CHANGE]])
        output = self._output(columns)
        publish = self._publish_spec(columns, output)
        hidden = {name for name in flow.hidden if name != hidden_columns.PARTITION_TIME}
        flow = flow.only({*publish.read, *hidden})
        return self._prepared(flow, functools.partial(publish_leg, publish), output)

    def _output(self, columns: StructType) -> StructType:
        """Return the columns at the leg's end: of a repartition topic those that are read behind it."""
        sink = self._leg.sink
        return self._of.needs.shipped(sink.topic) if sink is not None and sink.internal else columns

    def _publish_spec(self, columns: StructType, output: StructType) -> Any:
        """Return the last step; of ``columns``, ``output`` are those that go on. The key may be of the others."""
        shared: dict[str, Any] = {"legs": self._of.legs, "names": self._of.names, "config": self._of.config}
        return publish_spec(self._leg, columns, output, **shared, step=self._writing)

    def _between(self, flow: Flow, step: Step, columns: StructType) -> Flow:
        return flow.step(step, self._job.names(self._leg.id, Role.BETWEEN), columns)

    def _prepared(self, flow: Flow, step: Step, output: StructType) -> PreparedLeg:
        """Return the leg, given what its last step is and what it writes."""
        leg = self._leg
        last = self._of.fields.reporting(leg, self._job.spark_partitions, step)
        reports = flow.last(last, self._job.names(leg.id, Role.LAST))
        return PreparedLeg(
            leg,
            reports,
            flow.differs_each_time,
            output,
            flow.count + 1,
            flow.not_resident,
            self._state,
            self._fetch,
        )
