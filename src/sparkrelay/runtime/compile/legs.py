"""From a leg of the topology to one prepared DataFrame.

    placed source -> fetch (Arrow) -> the user's steps (Catalyst) -> state (Arrow) -> steps after it -> publish (Arrow)

Steps of ours that follow one another are one Python stage (``job_kinds``). A plan is made once for an assignment
and run for every micro-batch; ranges, batch numbers and producer ids travel beside it (``commands``).

The same code checks a topology before anything starts: building a leg's DataFrame makes Catalyst resolve every
column, and an error is raised with the line of the user's step in front.
"""

from __future__ import annotations

import copy
import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from sparkrelay.operators.collected_join.plan import CollectedJoins
from sparkrelay.operators.emitting.plan import JoinSide, Surroundings
from sparkrelay.operators.emitting.plans import EmittingSteps
from sparkrelay.operators.latest.run import LatestRunner
from sparkrelay.operators.lookup.plan import behind_lookup, by_lookup, in_words, lookup_spec, with_times
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
from sparkrelay.runtime.compile.catalyst import lets_nothing_through, select_names
from sparkrelay.runtime.compile.column_origins import computed_from
from sparkrelay.runtime.compile.deletions import Deletions
from sparkrelay.runtime.compile.grouping import finished, projected
from sparkrelay.runtime.compile.job_kinds import BulkJob, ResidentJob, no_rows_of
from sparkrelay.runtime.compile.prepared_leg import PreparedLeg
from sparkrelay.runtime.compile.publish_spec import changes_spec, late_spec, publish_spec, settle_spec, shared_changelog
from sparkrelay.runtime.compile.read_columns import wanted_columns
from sparkrelay.runtime.compile.resident_plan import why_not_resident
from sparkrelay.runtime.compile.row_steps import apply_steps, joined, unambiguous, visible
from sparkrelay.runtime.compile.row_wise import must_rebuild
from sparkrelay.runtime.compile.schemas import hidden_fields, without_kafka
from sparkrelay.runtime.compile.source_columns import fetch_spec, only, source_fields, topics_read, with_unread
from sparkrelay.runtime.compile.state_spec import state_spec
from sparkrelay.runtime.compile.step_fields import StepFields
from sparkrelay.runtime.compile.unions import Unions
from sparkrelay.runtime.compile.watermarks import with_window
from sparkrelay.runtime.contract import hidden_columns
from sparkrelay.runtime.spark.session import missing_for_resident_jobs
from sparkrelay.runtime.worker.fetch import fetch_leg
from sparkrelay.runtime.worker.publish import publish_leg
from sparkrelay.topology import Lookup
from sparkrelay.topology.forks import repeated_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from sparkrelay.config import StreamsConfig
    from sparkrelay.operators.aggregate.calls import AggregateCalls
    from sparkrelay.operators.emitting.step import EmittingStep
    from sparkrelay.operators.table.run import TableRunner
    from sparkrelay.runtime.contract.specs import FetchSpec, PublishSpec
    from sparkrelay.runtime.spark.collected_frames import Collect, CollectedFrames
    from sparkrelay.runtime.spark.executor_target import ExecutorTarget
    from sparkrelay.runtime.topics.topic_names import TopicNames
    from sparkrelay.topology import Aggregation, Leg, Step, TableJoin


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
        self._target = target
        self._config = config
        self.writes_dead_letters = config.errors_dead_letter_queue_topic_name is not None
        self._legs = tuple(legs)
        self._keepers = {leg.aggregation.store: leg for leg in reversed(self._legs) if leg.aggregation}
        self._repeated = repeated_steps(legs)
        self._deletions = Deletions(self._legs)
        self._job = BulkJob(target)
        self._resident = ResidentJob(target)
        self._names = names
        self._fields = StepFields(target, config, names, client)
        self._joins = CollectedJoins(frames, target, config.max_poll_interval_ms / 1000)
        #: store -> what its grouping makes of its rows
        self._aggregates: dict[str, AggregateCalls] = {}
        #: internal topic (topology name) -> Spark schema of the rows that end there, known once its writer is built
        self._ended: dict[str, StructType] = {}
        #: internal topic (topology name) -> those columns of them that are shipped through it
        self._shipped: dict[str, StructType] = {}
        #: internal topic (topology name) -> what columns of its rows are computed from; the same in each build of a leg
        self._computed: dict[str, Mapping[str, str]] = {}
        #: leg -> the columns of its source that anything reads
        self._read: dict[str, frozenset[str]] = {}
        #: leg, and a lookup or a join with a collected DataFrame that it may share -> the columns that it reads behind
        self._read_behind: dict[tuple[str, Step | Lookup], frozenset[str]] = {}
        #: store -> the same of its grouping columns
        self._computed_keys: dict[str, Mapping[str, str]] = {}
        self._unions = Unions()
        #: store -> what columns of its rows are computed from, once the leg that keeps it is built
        self._made: dict[str, Mapping[str, str]] = {}
        #: store -> what it holds, in words, and how far back a table's history goes, in milliseconds; likewise
        self._held: dict[str, tuple[str, int | None]] = {}
        self._emitting = EmittingSteps(Surroundings(self._legs, self._ended, self._side, names, config))
        #: store of a step that emits a stream -> the columns behind it that anything reads
        self._read_behind_store: dict[str, frozenset[str]] = {}
        #: leg -> what its stateful step does
        self._states: dict[str, TableRunner] = {}

    def source_topics(self, leg: Leg) -> frozenset[str]:
        """Return Kafka's names of a leg's source topics."""
        return frozenset(topics_read(leg, self._names))

    def build(self, leg: Leg) -> PreparedLeg:
        """Build one leg; legs that read a repartition topic come after the one that writes it.

        Raises:
            TopologyException: a column does not exist or a step is not possible; names the user's line.
        """
        with unambiguous(str((leg.sink or leg.action or leg.stateful_step or leg.source).call_site)):
            return self._goes_on(leg) if leg.goes_on else self._read_and_built(leg)

    def _read_and_built(self, leg: Leg) -> PreparedLeg:
        full = self._source_schema(leg)
        source = self._source(leg, full)
        for index, step in enumerate(leg.before):
            if step.is_union:
                self._unions.check(step, self._in_words(leg, leg.before[:index], source))
        # A first pass with every column shows which ones are read; the second decodes only those.
        self._read[leg.id] = self._wanted(leg, source)
        return self._built(leg, full)

    def renew(self, legs: Sequence[Leg], collect: Collect) -> frozenset[str]:
        """Have the DataFrames of legs collected that are too old; return which legs must be built again for that.

        Raises:
            SparkRelayError: one could not be collected for too long.
        """
        changed = self._joins.renew(legs, collect)
        return frozenset(leg.id for leg in self._legs if not changed.isdisjoint(leg.collected))

    def build_resident(self, plan: PreparedLeg) -> PreparedLeg | str:
        """Build a leg again as a part of a resident job; return why it cannot be one.

        Args:
            plan: what :meth:`build` made of it.
        """
        if plan.rebuild is not None:
            return plan.rebuild
        reason = missing_for_resident_jobs(self._target.spark, plan.steps) or why_not_resident(plan.reports)
        if reason is not None:
            return reason
        # What the first build has found out is true of this one too.
        compiler = copy.copy(self)
        compiler._job = self._resident
        if plan.leg.goes_on:
            return compiler._goes_on(plan.leg)
        return compiler._built(plan.leg, self._source_schema(plan.leg))

    def _built(self, leg: Leg, full: StructType) -> PreparedLeg:
        wanted = self._read[leg.id]
        names = [field.name for field in full if field.name in wanted or field.name.startswith(hidden_columns.PREFIX)]
        everything = StructType([*full, *hidden_fields(self._job.hidden)])
        read = StructType([full[name] for name in names])
        source = with_unread(self._source(leg, read), everything)
        before = self._computed.get(leg.source.topics[0], {}) if leg.source.internal else {}
        rows, base, behind = self._before_state(leg, source, before)
        stateful: Callable[..., tuple[DataFrame, StructType]] | None = None
        if leg.emitting is not None:
            stateful = functools.partial(self._emitted, leg, leg.emitting, rows, behind)
            reports, output = stateful()
        elif leg.aggregation is None and leg.action is not None:
            output = visible(rows)
            rows, act = acted(leg, leg.action, rows, (*carried_columns(leg), *self._job.hidden), self._step(leg))
            reports = self._last(leg, rows, act)
        elif leg.aggregation is None:
            spec, written, columns = self._written(leg, self._deletions.keyed(leg, rows, base))
            output = self._output(leg, columns, lambda names: computed_from(rows, base, names, behind))
            reports = self._last(leg, written, functools.partial(publish_leg, spec))
        else:
            store = leg.aggregation.store
            if store not in self._computed_keys:
                keys = self._aggregates[store].results.names[: len(leg.aggregation.keys)]
                keys += [hidden_columns.EVENT_TIME] if leg.keeps_watermark else []
                self._computed_keys[store] = computed_from(rows, base, keys, behind)
            stateful = functools.partial(self._stateful, leg, leg.aggregation, rows, self._computed_keys[store])
            reports, output = stateful()
        rebuild, idle = must_rebuild(reports), lets_nothing_through(reports)
        if idle and stateful is not None:
            # A store that is passed over would stand still while the group's offsets move on, and the next owner goes
            # back to where the store stands.
            reports, _ = stateful(folded=True)
            idle = False
        computes = leg.aggregation is not None and bool(self._aggregates[leg.aggregation.store].computed)
        fetch = None if leg.reused_topic is None else self._fetch_spec(leg, read)
        return PreparedLeg(leg, reports, rebuild, idle, output, self._states.get(leg.id), computes, fetch)

    def _wanted(self, leg: Leg, source: DataFrame) -> frozenset[str]:
        """Return which columns of the leg's source anything reads; ``source`` has all that there are."""
        if leg.emitting is not None and not self._emitting.known(leg.emitting):
            # The other stream is yet to be built, and what is read behind the join may be its.
            return frozenset(source.columns)
        if not all(self._can_be_built(self._keepers[lookup.store]) for lookup in leg.lookups):
            # So is the table that its rows look into, and which of their columns it has too is not known.
            return frozenset(source.columns)
        return self._wanted_of(leg, leg.before, source)

    def _wanted_of(self, leg: Leg, steps: Sequence[Step | Lookup], start: DataFrame) -> frozenset[str]:
        """Return which columns of rows anything reads, from those steps of a leg on or behind a repartition topic."""
        rows = self._in_words(leg, steps, start)
        if leg.emitting is not None:
            rows = self._taken(leg, leg.emitting, rows)
        elif leg.aggregation is not None:
            rows = self._projection(leg, leg.aggregation, rows)
        elif leg.late_for is not None:
            rows = with_window(leg.late_for, rows, carried_columns(leg))
        elif leg.action is not None:
            rows = select_names(rows, without_kafka(visible(rows)).names)
        elif leg.sink is not None:
            rows = self._written(leg, self._deletions.keyed(leg, rows, start))[1]
        return wanted_columns(rows, start)

    def _output(
        self, leg: Leg, columns: StructType, computed: Callable[[Iterable[str]], Mapping[str, str]]
    ) -> StructType:
        """Return the columns at a leg's end; ``computed`` says what some of them were computed from."""
        if leg.sink is None or not leg.sink.internal:
            return columns
        shipped = self._shipment(leg, columns)
        if leg.sink.topic not in self._computed:
            self._computed[leg.sink.topic] = computed(shipped.names)
        return shipped

    def _written(self, leg: Leg, rows: DataFrame) -> tuple[PublishSpec, DataFrame, StructType]:
        """Return the last step of a leg without state, the columns of ``rows`` that it reads, and all visible ones."""
        columns = visible(rows)
        output = self._shipment(leg, columns) if leg.sink is not None and leg.sink.internal else columns
        spec = self._publish_spec(leg, columns, output)
        carried = (name for name in carried_columns(leg) if name != hidden_columns.PARTITION_TIME)
        names = (*spec.read, *carried, *self._job.hidden)
        return spec, select_names(rows, dict.fromkeys(names)), columns

    def _shipment(self, leg: Leg, everything: StructType) -> StructType:
        """Return the columns that must travel through the leg's repartition topic: those that are read behind it."""
        assert leg.sink is not None
        topic = leg.sink.topic
        if topic not in self._shipped:
            if any(step.is_union for step in (*leg.before, *leg.after)):
                # The other stream may have nulls where this one has none.
                everything = everything.toNullable()
            self._ended[topic] = self._shipped[topic] = everything
            needed: set[str] = set()
            for reader in self._legs:
                if reader.source.internal and topic in reader.source.topics and not reader.goes_on:
                    needed |= self._wanted(reader, self._source(reader, self._source_schema(reader)))
            kept = [field for field in everything if field.name in needed] or everything.fields[:1]
            # By name, so that rows of an earlier pipeline can be read though its columns came in another order.
            self._shipped[topic] = StructType(sorted(kept, key=lambda field: field.name))
        return self._shipped[topic]

    # -- source ---------------------------------------------------------------------------------------------------

    def _source_schema(self, leg: Leg) -> StructType:
        """Return every column the source can give, hidden ones last."""
        ended = self._ended[leg.source.topics[0]] if leg.source.internal else None
        given = source_fields(leg.source, ended)
        # What a table's rows are, as they were or as they are, has been written with them.
        written = {field.name for field in given}
        carried = (field for field in hidden_fields(carried_columns(leg)) if field.name not in written)
        return StructType([*given, *carried])

    def _step(self, leg: Leg) -> dict[str, Any]:
        """Return what every step of a leg needs to know, by field of ``StepSpec``."""
        return self._fields.of(leg, self._job.spark_partitions)

    def _writing(self, leg: Leg) -> dict[str, Any]:
        """Return that, and how a step of it writes to topics."""
        return {**self._step(leg), **self._fields.writing}

    def _source(self, leg: Leg, schema: StructType) -> DataFrame:
        return self._job.source(leg.id, functools.partial(fetch_leg, self._fetch_spec(leg, schema)), schema)

    def _fetch_spec(self, leg: Leg, schema: StructType) -> FetchSpec:
        shipped = self._shipped[leg.source.topics[0]] if leg.source.internal else None
        return fetch_spec(leg, schema, shipped, legs=self._legs, step=self._step(leg), **self._fields.decoding(leg))

    # -- the user's steps -----------------------------------------------------------------------------------------

    def _before_state(
        self, leg: Leg, source: DataFrame, behind: Mapping[str, str]
    ) -> tuple[DataFrame, DataFrame, Mapping[str, str]]:
        """Apply the steps before the stateful one and, if there is one, its projection.

        Returns:
            The rows; what Catalyst has made them of, which is the source or what came out of the last lookup; and what
            columns of that are computed from, as ``behind`` says it of the source.
        """
        start = source, source, behind
        passing = self._deletions.pass_through(leg)
        rows, base, behind = self._applied(leg, leg.before, start, carried_columns(leg), passing=passing)
        if leg.emitting is not None:
            if leg.join is None:
                behind = computed_from(rows, base, visible(rows).names, behind)
            rows = self._taken(leg, leg.emitting, rows)
        elif leg.aggregation is not None:
            rows = self._projection(leg, leg.aggregation, rows)
        elif leg.late_for is not None:
            rows = with_window(leg.late_for, rows, (*carried_columns(leg), *self._job.hidden))
            spec, output = late_spec(leg, rows, leg.late_for.store, self._step(leg))
            rows = base = self._job.between(leg.id, rows, spec, output)
        return rows, base, behind

    def _applied(
        self,
        leg: Leg,
        steps: Sequence[Step | Lookup],
        start: tuple[DataFrame, DataFrame, Mapping[str, str]],
        carried: tuple[str, ...],
        *,
        passing: bool = False,
    ) -> tuple[DataFrame, DataFrame, Mapping[str, str]]:
        """Apply steps that do not change state.

        Args:
            leg: the leg.
            steps: of it.
            start: what :meth:`_before_state` returns, of the steps before these.
            carried: the rows' hidden columns.
            passing: True in front of a table of newest rows, which deletions reach whatever stands there.
        """
        rows, base, behind = start
        for some, cut in by_lookup(steps, collected=True):
            hidden = (*carried, *self._job.hidden)
            rows = apply_steps(some, rows, hidden, tombstones_pass=passing, repeated=self._repeated)
            if isinstance(cut, Lookup):
                behind = computed_from(rows, base, visible(rows).names, behind)
                rows = base = self._looked_up(leg, cut, rows)
            elif cut is not None:
                words = joined(cut, rows)
                behind = computed_from(words, base, visible(words).names, behind)
                everything = StructType([*visible(words), *hidden_fields((*carried, *self._job.hidden))])
                if steps is leg.before:
                    # Behind the join nothing says what columns are made of.
                    rows = self._deletions.keyed(leg, rows, base)
                    read = self._read_from(leg, cut, everything)
                    rows = only(rows, (*cut.args[1], *read, *carried, *self._job.hidden))
                spec, output = self._joins.prepare(cut, rows, carried, tombstones_pass=passing)
                rows = self._job.between(leg.id, rows, spec, output)
                rows = base = with_unread(rows, everything)
        return rows, base, behind

    def _read_from(self, leg: Leg, cut: Step | Lookup, behind: StructType) -> frozenset[str]:
        """Return which columns anything reads behind a lookup, or behind a join that Catalyst does not see through.

        Others go neither in nor out, and not for their bytes alone: what is read nowhere is null by then, and null
        lists, as the headers in ``kafka`` are, take Spark time that is quadratic in the rows of a batch.

        Args:
            leg: the leg.
            cut: one of its steps before the stateful one.
            behind: every column behind it.
        """
        if (leg.id, cut) not in self._read_behind:
            steps = leg.before[leg.before.index(cut) + 1 :]
            self._read_behind[leg.id, cut] = self._wanted_of(leg, steps, no_rows_of(self._job.placed(), behind))
        return self._read_behind[leg.id, cut]

    def _in_words(self, leg: Leg, steps: Sequence[Step | Lookup], source: DataFrame) -> DataFrame:
        """Apply steps in front of a leg's stateful one for Catalyst to look at, with lookups that it sees through."""
        hidden = (*carried_columns(leg), *self._job.hidden)
        rows = source
        for some, lookup in by_lookup(steps, collected=False):
            rows = apply_steps(some, rows, hidden, tombstones_pass=self._deletions.pass_through(leg))
            if isinstance(lookup, Lookup):
                rows = in_words(rows, lookup, behind_lookup(lookup, rows, self._table(lookup.store))[1])
        return rows

    def _table(self, store: str) -> StructType:
        """Return the columns of a table, its key's first."""
        if store not in self._aggregates:
            self.build(self._keepers[store])
        return self._aggregates[store].results

    def _can_be_built(self, leg: Leg) -> bool:
        """Return whether all is known that a leg reads: what comes through a repartition topic, once its writer is."""
        written = not leg.source.internal or leg.source.topics[0] in self._ended
        return written and all(self._can_be_built(self._keepers[lookup.store]) for lookup in leg.lookups)

    def _looked_up(self, leg: Leg, lookup: Lookup, rows: DataFrame) -> DataFrame:
        """Return the rows with what the table holds for them; what nobody reads behind it goes neither in nor out."""
        columns, given = behind_lookup(lookup, rows, self._table(lookup.store))
        everything = StructType([*columns, *hidden_fields((*carried_columns(leg), *self._job.hidden))])
        read = self._read_from(leg, lookup, everything)
        rows = with_times(lookup, rows)
        rows = only(rows, (*lookup.columns, *read, *carried_columns(leg), hidden_columns.EVENT_TIME, *self._job.hidden))
        kept = StructType([field for field in columns if field.name in read])
        output = StructType([*kept, *hidden_fields(carried_columns(leg))])
        spec = lookup_spec(lookup, rows, given, output, held=self._held[lookup.store], step=self._step(leg))
        return with_unread(self._job.between(leg.id, rows, spec, output), everything)

    def _projection(self, leg: Leg, aggregation: Aggregation, rows: DataFrame) -> DataFrame:
        """Return the rows that a stateful step takes in."""
        hidden = (*carried_columns(leg), *self._job.hidden)
        taken, self._aggregates[aggregation.store] = projected(aggregation, rows, hidden)
        return taken

    def _stateful(
        self,
        leg: Leg,
        aggregation: Aggregation,
        taken: DataFrame,
        computed: Mapping[str, str],
        *,
        folded: bool = False,
    ) -> tuple[DataFrame, StructType]:
        """Return the leg's reports and its output.

        ``computed`` says what grouping columns are computed from; ``folded`` has the state step run although Spark sees
        no row.
        """
        aggregates = self._aggregates[aggregation.store]
        results = aggregates.held
        rows = StructType([field for field in taken.schema if field.name not in self._job.hidden])
        spec, made = state_spec(
            leg,
            aggregation,
            taken,
            rows,
            aggregates,
            computed,
            legs=self._legs,
            names=self._names,
            config=self._config,
            step=self._writing(leg),
        )
        if (answers := answers_of(aggregation.answers, self._aggregates, self._states.values())) is not None:
            assert isinstance(spec, LatestRunner), "answers come into a table of newest rows"
            spec = replace(spec, answers=answers)
        self._states[leg.id] = spec
        if folded and lets_nothing_through(taken):
            taken = no_rows_of(self._job.placed(), taken.schema)
        made = self._made[aggregation.store] = {**made, **aggregates.words}
        self._held[aggregation.store] = spec.contents, spec.history_ms
        if not (leg.after or aggregates.computed or leg.sends_changes) and leg.action is None:
            output = self._output(leg, results, lambda _: made)
            publish = self._publish_spec(leg, results, output)
            both = functools.partial(spec.published, publish)
            return self._last(leg, taken, both), output
        emitted = StructType([*results, *hidden_fields(emitted_columns(leg, aggregation))])
        updates = self._job.between(leg.id, taken, spec, emitted)
        updates = finished(leg, leg, aggregates, updates, (*emitted_columns(leg, aggregation), *self._job.hidden))
        return self._behind_table(leg, updates, emitted_columns(leg, aggregation), made, folded=folded)

    # -- steps that emit a stream ---------------------------------------------------------------------------------

    def _side(self, leg: Leg) -> JoinSide:
        assert leg.join is not None
        source = self._source(leg, self._source_schema(leg))
        rows = self._in_words(leg, leg.before, source)
        columns = without_kafka(visible(rows))
        behind = self._computed.get(leg.source.topics[0], {}) if leg.source.internal else {}
        return JoinSide(columns, computed_from(rows, source, columns.names, behind), leg.join)

    def _taken(self, leg: Leg, emitting: EmittingStep, rows: DataFrame) -> DataFrame:
        """Return the rows that a step takes in that emits a stream."""
        read = self._read_emitted(leg, self._emitting.columns(emitting, rows))
        return self._emitting.taken(emitting, rows, read, (*carried_columns(leg), *self._job.hidden))

    def _read_emitted(self, leg: Leg, columns: StructType) -> frozenset[str]:
        """Return which of the columns behind a step that emits a stream anything reads: the others are not kept."""
        assert leg.store is not None
        if leg.store not in self._read_behind_store:
            hidden = (*EMITTED, *self._job.hidden)
            start = no_rows_of(self._job.placed(), StructType([*columns, *hidden_fields(hidden)]))
            rows = apply_steps(leg.after, start, hidden)
            ends = visible(rows)
            if leg.action is not None:
                names = without_kafka(ends).names
            else:
                internal = leg.sink is not None and leg.sink.internal
                names = self._publish_spec(leg, ends, self._shipment(leg, ends) if internal else ends).read
            rows = select_names(rows, dict.fromkeys(names))
            self._read_behind_store[leg.store] = wanted_columns(rows, start) & {*columns.names}
        return self._read_behind_store[leg.store]

    def _emitted(
        self, leg: Leg, emitting: EmittingStep, taken: DataFrame, computed: Mapping[str, str], *, folded: bool = False
    ) -> tuple[DataFrame, StructType]:
        """Return the leg's reports and its output; ``folded`` has the step run although Spark sees no row."""
        everything = self._emitting.columns(emitting, taken)
        read = self._read_emitted(leg, everything)
        step, output = self._emitting.runner(leg, emitting, taken, read, computed, self._writing(leg))
        if folded and lets_nothing_through(taken):
            taken = no_rows_of(self._job.placed(), taken.schema)
        emitted = self._job.between(leg.id, taken, step, output)
        rows = with_unread(emitted, StructType([*everything, *hidden_fields((*EMITTED, *self._job.hidden))]))
        made = self._emitting.computed(emitting, computed)
        return self._behind_table(leg, rows, EMITTED, made, folded=folded)

    def _goes_on(self, leg: Leg) -> PreparedLeg:
        """Build a leg that goes on from the changes of stores, which other legs keep."""
        if leg.table_join is not None:
            rows = self._tables_joined(leg, leg.table_join)
            reports, output = self._behind_table(leg, rows, joined_columns(leg), {})
        else:
            assert leg.changes_of is not None, "a leg that reads no topic goes on from a store"
            rows = self._changes(leg, leg.changes_of)
            reports, output = self._behind_table(leg, rows, CHANGES, self._made[leg.changes_of])
        return PreparedLeg(leg, reports, must_rebuild(reports), lets_nothing_through(reports), output)

    def _changes(self, leg: Leg, store: str) -> DataFrame:
        """Return the changes of a store, each row as it was and as it is."""
        self._table(store)
        spec, schema = changes_spec(store, self._aggregates[store].held, self._held[store][0], self._step(leg))
        rows = self._job.source(leg.id, spec, schema)
        return finished(leg, self._keepers[store], self._aggregates[store], rows, (*CHANGES, *self._job.hidden))

    def _tables_joined(self, leg: Leg, join: TableJoin) -> DataFrame:
        """Return what has changed of the rows that are joined of tables."""
        for store in join.stores:
            self._table(store)
        states = {spec.store: spec for spec in self._states.values()}
        return self._job.source(leg.id, *joined_tables(leg, join, self._aggregates, states, self._step(leg)))

    def _behind_table(
        self, leg: Leg, updates: DataFrame, emitted: tuple[str, ...], made: Mapping[str, str], *, folded: bool = False
    ) -> tuple[DataFrame, StructType]:
        """Return the leg's reports and its output, for what is behind its table.

        Args:
            leg: the leg.
            updates: the changed rows of the table.
            emitted: their hidden columns.
            made: what columns of theirs are computed from.
            folded: True to have ``updates`` run although Spark sees that none of them gets to the end.
        """
        hidden = (*emitted, *self._job.hidden)
        for index, step in enumerate(leg.after):
            if step.is_union:
                self._unions.check(step, apply_steps(leg.after[:index], updates, hidden))
        of_table = leg.after[: leg.table_steps]
        rows = apply_steps(of_table, updates, hidden, table_steps=len(of_table), repeated=self._repeated)
        base = updates
        if hidden_columns.CHANGE in emitted and not leg.sends_changes:
            made = computed_from(rows, updates, visible(rows).names, made)
            # New rows, and deletions, are what a table's filters make of the changes of its rows.
            spec, settled = settle_spec(leg, visible(rows), self._step(leg))
            rows = base = self._job.between(leg.id, rows, spec, settled)
            emitted, hidden = SETTLED, (*SETTLED, *self._job.hidden)
        rows, base, made = self._applied(leg, leg.after[leg.table_steps :], (rows, base, made), emitted)
        columns = visible(rows)
        if leg.sends_changes:
            columns = StructType([*columns, *hidden_fields((hidden_columns.CHANGE,))])
        output = self._output(leg, columns, lambda names: computed_from(rows, base, names, made))
        if leg.action is not None:
            rows, last = acted(leg, leg.action, rows, hidden, self._step(leg), shared_changelog(leg, self._names))
        else:
            last = functools.partial(publish_leg, self._publish_spec(leg, columns, output))
        if folded and lets_nothing_through(rows):
            rows = no_rows_of(updates, rows.schema)
        return self._last(leg, rows, last), output

    # -- sink -----------------------------------------------------------------------------------------------------

    def _last(self, leg: Leg, rows: DataFrame, step: Callable[..., Any]) -> DataFrame:
        """Return the reports of a leg's last step, which says and writes what its first one has skipped."""
        return self._job.last(leg.id, rows, self._fields.reporting(leg, self._job.spark_partitions, step))

    def _publish_spec(self, leg: Leg, columns: StructType, output: StructType) -> PublishSpec:
        """Return the last step; of ``columns``, ``output`` are those that go on. The key may be of the others."""
        shared: dict[str, Any] = {"legs": self._legs, "names": self._names, "config": self._config}
        return publish_spec(leg, columns, output, **shared, step=self._writing(leg))
