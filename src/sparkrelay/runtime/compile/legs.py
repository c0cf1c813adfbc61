"""From a leg of the topology to one prepared DataFrame.

    placed source -> fetch (Arrow) -> the user's steps (Catalyst) -> state (Arrow) -> steps after it -> publish (Arrow)

Without steps after the stateful one, state and publish are one Python stage. A plan is made once for an assignment
and run for every micro-batch; ranges, batch numbers and producer ids travel beside it (``commands``).

The same code checks a topology before anything starts: building a leg's DataFrame makes Catalyst resolve every
column, and an error is raised with the line of the user's step in front.
"""

from __future__ import annotations

import copy
import functools
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from sparkrelay.errors import TopologyException
from sparkrelay.records.formats import Json
from sparkrelay.runtime.compile.catalyst import (
    as_column,
    column_text,
    lets_nothing_through,
    must_rebuild,
    projected_sql,
    read_aggregate,
    wanted_columns,
)
from sparkrelay.runtime.compile.column_origins import computed_from
from sparkrelay.runtime.compile.lookups import behind_lookup, in_words, newest_schema
from sparkrelay.runtime.compile.resident_plan import why_not_resident
from sparkrelay.runtime.compile.row_steps import apply_steps, checked, refuse_hidden, visible
from sparkrelay.runtime.compile.schemas import (
    KAFKA_FIELDS,
    SinkPlan,
    aggregate_spec,
    arrow_schema,
    check_event_time,
    check_groupable,
    check_packable,
    format_fields,
    hidden_fields,
    layout_number,
    plan_sink,
    unlike,
    without_kafka,
)
from sparkrelay.runtime.compile.watermarks import event_time, watermark_spec
from sparkrelay.runtime.compile.ways import BulkWay, ResidentWay, in_arrow
from sparkrelay.runtime.contract import hidden_columns
from sparkrelay.runtime.contract.client_settings import compression, flush_seconds
from sparkrelay.runtime.contract.specs import (
    ActionSpec,
    ChangesSpec,
    FetchSpec,
    LookupSpec,
    PublishSpec,
    SettleSpec,
    StateSpec,
)
from sparkrelay.runtime.spark.session import missing_for_resident_jobs
from sparkrelay.runtime.worker.actions import act_leg
from sparkrelay.runtime.worker.context import no_rows
from sparkrelay.runtime.worker.fetch import fetch_leg
from sparkrelay.runtime.worker.lookups import lookup_leg
from sparkrelay.runtime.worker.publish import publish_leg, state_and_publish_leg, state_leg
from sparkrelay.runtime.worker.table_changes import changes_leg, settle_leg
from sparkrelay.state.aggregate import AggregateSpec
from sparkrelay.state.batch import SPREAD_BY
from sparkrelay.topology import Lookup, NamedAggregate, Show
from sparkrelay.topology.columns import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import Column, DataFrame

    from sparkrelay.config import StreamsConfig
    from sparkrelay.records.formats import Format
    from sparkrelay.runtime.compile.ways import Way
    from sparkrelay.runtime.spark.executor_target import ExecutorTarget
    from sparkrelay.runtime.topics.topic_names import TopicNames
    from sparkrelay.topology import Aggregation, Foreach, Leg, Step

__all__ = ["LegCompiler", "PreparedLeg"]

#: Characters of the words for what a store holds.
_LONGEST_CONTENTS = 2000


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
    """

    leg: Leg
    reports: DataFrame
    rebuild: str | None
    idle: bool
    output: StructType
    state: StateSpec | None = None

    @property
    def steps(self) -> int:
        """How many Python steps of ours it has."""
        behind_state = self.leg.aggregation is not None and (bool(self.leg.after) or self.leg.action is not None)
        settled = self.leg.filters_table or self.leg.changes_of is not None
        return 2 + len(self.leg.lookups) + behind_state + settled


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
    ) -> None:
        """Take what every leg shares.

        Args:
            target: where the legs run.
            config: the instance's settings.
            legs: every leg of the topology.
            names: Kafka's names of the topology's topics.
            client: settings of the workers' Kafka connections.
        """
        self._target = target
        self._config = config
        self._legs = tuple(legs)
        self._way: Way = BulkWay(target)
        self._resident = ResidentWay(target)
        self._names = names
        self._client = client
        self._compression = compression(config)
        self._flush_seconds = flush_seconds(config)
        #: store -> schema that Spark gives the aggregation, names and types
        self._grouped: dict[str, StructType] = {}
        #: internal topic (topology name) -> Spark schema of the rows that end there, known once its writer is built
        self._ended: dict[str, StructType] = {}
        #: internal topic (topology name) -> those columns of them that are shipped through it
        self._shipped: dict[str, StructType] = {}
        #: internal topic (topology name) -> what columns of its rows are computed from; the same in each build of a leg
        self._computed: dict[str, Mapping[str, str]] = {}
        #: leg -> the columns of its source that anything reads
        self._read: dict[str, frozenset[str]] = {}
        #: store -> the same of its grouping columns
        self._computed_keys: dict[str, Mapping[str, str]] = {}
        #: union's step -> the columns of the first stream that was built
        self._united: dict[int, StructType] = {}
        #: store -> what columns of its rows are computed from, once the leg that keeps it is built
        self._made: dict[str, Mapping[str, str]] = {}
        #: store -> what it holds, in words, likewise
        self._contents: dict[str, str] = {}
        #: leg -> what its stateful step does
        self._states: dict[str, StateSpec] = {}

    def source_topics(self, leg: Leg) -> frozenset[str]:
        """Return Kafka's names of a leg's source topics."""
        return frozenset(self._names(topic, leg.source.internal) for topic in leg.source.topics)

    def build(self, leg: Leg) -> PreparedLeg:
        """Build one leg; legs that read a repartition topic come after the one that writes it.

        Raises:
            TopologyException: a column does not exist or a step is not possible; names the user's line.
        """
        full = self._source_schema(leg)
        if leg.changes_of is not None:
            return self._built(leg, full)
        self._check_unions(leg, self._source(leg, full))
        # A first pass with every column shows which ones the plan reads; the second decodes only those.
        self._read[leg.id] = self._wanted(leg, full)
        return self._built(leg, full)

    def _check_unions(self, leg: Leg, source: DataFrame) -> None:
        """Refuse to put streams of other columns together.

        Raises:
            TopologyException: a name or type is another one, or ``union`` means something else than by name.
        """
        for index, step in enumerate(leg.before):
            if step.is_union:
                self._check_united(step, self._in_words(leg, leg.before[:index], source))

    def _check_united(self, step: Step | Lookup, rows: DataFrame) -> None:
        columns = visible(rows)
        first = self._united.setdefault(id(step), columns)
        if (reason := unlike(first, columns, in_order=step.kind == "union")) is not None:
            raise TopologyException(f"{step.call_site}: {step.kind}() of streams with other columns: {reason}")

    def build_resident(self, plan: PreparedLeg) -> PreparedLeg | str:
        """Build a leg again as a part of a resident job; return why it cannot be one.

        Args:
            plan: what :meth:`build` made of it.
        """
        if plan.rebuild is not None:
            return plan.rebuild
        if (reason := missing_for_resident_jobs(self._target.spark, plan.steps)) is not None:
            return reason
        if (reason := why_not_resident(plan.reports)) is not None:
            return reason
        # What the first build has found out is true of this one too.
        compiler = copy.copy(self)
        compiler._way = self._resident
        return compiler._built(plan.leg, self._source_schema(plan.leg))

    def _built(self, leg: Leg, full: StructType) -> PreparedLeg:
        if leg.changes_of is not None:
            return self._built_from_changes(leg, leg.changes_of)
        wanted = self._read[leg.id]
        names = [field.name for field in full if field.name in wanted or field.name.startswith(hidden_columns.PREFIX)]
        everything = StructType([*full, *hidden_fields(self._way.hidden)])
        source = _with_unread(self._source(leg, StructType([full[name] for name in names])), everything)
        before = self._computed.get(leg.source.topics[0], {}) if leg.source.internal else {}
        rows, base, behind = self._before_state(leg, source, before)
        if leg.aggregation is None and leg.action is not None:
            output = visible(rows)
            rows, act = self._acted(leg, leg.action, rows, (*_carried(leg), *self._way.hidden))
            reports = self._way.last(leg.id, rows, act)
        elif leg.aggregation is None:
            spec, rows, columns = self._written(leg, rows)
            output = self._output(leg, columns, lambda names: computed_from(rows, base, names, behind))
            reports = self._way.last(leg.id, rows, functools.partial(publish_leg, spec))
        else:
            store = leg.aggregation.store
            if store not in self._computed_keys:
                keys = self._grouped[store].names[: len(leg.aggregation.keys)]
                self._computed_keys[store] = computed_from(rows, base, keys, behind)
            computed = self._computed_keys[store]
            reports, output = self._stateful(leg, leg.aggregation, rows, computed)
        rebuild, idle = must_rebuild(reports), lets_nothing_through(reports)
        if idle and leg.aggregation is not None:
            # A store that is passed over would stand still while the group's offsets move on, and the next owner goes
            # back to where the store stands.
            reports, _ = self._stateful(leg, leg.aggregation, rows, computed, folded=True)
            idle = False
        return PreparedLeg(leg, reports, rebuild, idle, output, self._states.get(leg.id))

    def _wanted(self, leg: Leg, schema: StructType) -> frozenset[str]:
        """Return which columns of the leg's source anything reads, here or behind a repartition topic."""
        source = self._source(leg, schema)
        rows = self._in_words(leg, leg.before, source)
        if leg.aggregation is not None:
            rows = self._projection(leg, leg.aggregation, rows)
        elif leg.action is not None:
            rows = rows.select(*(quoted((name,)) for name in without_kafka(visible(rows)).names))
        elif leg.sink is not None:
            rows = self._written(leg, rows)[1]
        if lets_nothing_through(rows):
            # Spark has cut the source off, and with it what would show it: the steps name columns all the same.
            return frozenset(schema.names)
        return wanted_columns(rows, source)

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
        output = self._shipment(leg, columns) if _repartitions(leg) else columns
        spec = self._publish_spec(leg, columns, output)
        headers = ("headers",) if spec.headers else ()
        carried = (name for name in _carried(leg) if name != hidden_columns.PARTITION_TIME)
        names = (*spec.columns, *spec.key_columns, *headers, *carried, *self._way.hidden)
        return spec, rows.select(*(quoted((name,)) for name in dict.fromkeys(names))), columns

    def _shipment(self, leg: Leg, everything: StructType) -> StructType:
        """Return the columns that must travel through the leg's repartition topic: those that are read behind it."""
        assert leg.sink is not None
        topic = leg.sink.topic
        if topic not in self._shipped:
            if any(step.is_union for step in (*leg.before, *leg.after)):
                # The other stream may have nulls where this one has none.
                everything = StructType([StructField(field.name, field.dataType) for field in everything])
            self._ended[topic] = self._shipped[topic] = everything
            needed: set[str] = set()
            for reader in self._legs:
                if reader.source.internal and topic in reader.source.topics and reader.changes_of is None:
                    needed |= self._wanted(reader, self._source_schema(reader))
            kept = [field for field in everything if field.name in needed] or everything.fields[:1]
            # By name, so that rows of an earlier pipeline can be read though its columns came in another order.
            self._shipped[topic] = StructType(sorted(kept, key=lambda field: field.name))
        return self._shipped[topic]

    # -- source ---------------------------------------------------------------------------------------------------

    def _source_schema(self, leg: Leg) -> StructType:
        """Return every column the source can give, hidden ones last."""
        source = leg.source
        where = str(source.call_site)
        if source.internal:
            fields = list(self._ended[source.topics[0]])
        elif source.value is None and source.key is None:
            fields = list(KAFKA_FIELDS)
        else:
            fields = [*_decoded_fields(source.key, source.value, where), StructField("kafka", StructType(KAFKA_FIELDS))]
        if source.timestamp is not None:
            times = [field for field in fields if field.name == source.timestamp]
            if not times:
                raise TopologyException(
                    f"{where}: stream(timestamp={source.timestamp!r}) is not one of its columns: "
                    f"{', '.join(field.name for field in fields)}"
                )
            check_event_time(times[0], where)
        return StructType([*fields, *hidden_fields(_carried(leg))])

    def _step(self, leg: Leg) -> dict[str, Any]:
        """Return what every step of a leg needs to know, by field of ``StepSpec``."""
        return {
            "leg": leg.id,
            "subtopology": leg.subtopology,
            "topics": tuple(self._names(topic, leg.source.internal) for topic in leg.source.topics),
            "spark_partitions": self._way.spark_partitions,
            "client": self._client,
            "failure_key": self._target.failure_key,
        }

    def _source(self, leg: Leg, schema: StructType) -> DataFrame:
        source = leg.source
        value_schema = None
        if source.internal:
            value_schema = arrow_schema(self._shipped[source.topics[0]])
        elif isinstance(source.value, Json):
            declared = StructType(format_fields(source.value, "value", str(source.call_site)))
            needed = [field for field in declared if field.name in schema.names or field.name == source.timestamp]
            value_schema = arrow_schema(StructType(needed))
        spec = FetchSpec(
            **self._step(leg),
            key=source.key,
            value=source.value,
            internal=source.internal,
            value_schema=value_schema,
            layout=layout_number(self._shipped[source.topics[0]]) if source.internal else 0,
            output=arrow_schema(schema),
            event_time=source.timestamp,
            skip_tombstones=bool(leg.lookups) or (leg.aggregation is not None and not _keeps_newest(leg)),
            skip_bad_records=self._config.deserialization_exception_handler == "log-and-continue",
        )
        return self._way.source(leg.id, functools.partial(fetch_leg, spec), schema)

    # -- the user's steps -----------------------------------------------------------------------------------------

    def _before_state(
        self, leg: Leg, source: DataFrame, behind: Mapping[str, str]
    ) -> tuple[DataFrame, DataFrame, Mapping[str, str]]:
        """Apply the steps before the stateful one and, if there is one, its projection.

        Returns:
            The rows; what Catalyst has made them of, which is the source or what came out of the last lookup; and what
            columns of that are computed from, as ``behind`` says it of the source.
        """
        hidden = (*_carried(leg), *self._way.hidden)
        rows = base = source
        for steps, lookup in _by_lookup(leg.before):
            rows = apply_steps(steps, rows, hidden, tombstones_pass=_keeps_newest(leg))
            if lookup is not None:
                behind = computed_from(rows, base, visible(rows).names, behind)
                rows = base = self._looked_up(leg, lookup, rows)
        if leg.aggregation is not None:
            rows = self._projection(leg, leg.aggregation, rows)
        return rows, base, behind

    def _in_words(self, leg: Leg, steps: Sequence[Step | Lookup], source: DataFrame) -> DataFrame:
        """Apply steps in front of a leg's stateful one for Catalyst to look at, with lookups that it sees through."""
        hidden = (*_carried(leg), *self._way.hidden)
        rows = source
        for some, lookup in _by_lookup(steps):
            rows = apply_steps(some, rows, hidden, tombstones_pass=_keeps_newest(leg))
            if lookup is not None:
                rows = in_words(rows, lookup, behind_lookup(lookup, rows, self._table(lookup.store))[1])
        return rows

    def _table(self, store: str) -> StructType:
        """Return the columns of a table, its key's first."""
        if store not in self._grouped:
            self.build(
                next(leg for leg in self._legs if leg.aggregation is not None and leg.aggregation.store == store)
            )
        return self._grouped[store]

    def _looked_up(self, leg: Leg, lookup: Lookup, rows: DataFrame) -> DataFrame:
        columns, given = behind_lookup(lookup, rows, self._table(lookup.store))
        output = StructType([*columns, *hidden_fields(_carried(leg))])
        spec = LookupSpec(
            **self._step(leg),
            store=lookup.store,
            contents=self._contents[lookup.store],
            columns=lookup.columns,
            how=lookup.how,
            row=arrow_schema(given),
            output=arrow_schema(output),
            map_limit=self._config.store_max_bytes,
        )
        return self._way.between(leg.id, rows, functools.partial(lookup_leg, spec), output)

    def _projection(self, leg: Leg, aggregation: Aggregation, rows: DataFrame) -> DataFrame:
        """Return grouping keys and aggregate arguments as plain columns: Catalyst evaluates them, we only merge."""
        where = str(aggregation.call_site)
        if aggregation.newest:
            return self._newest(leg, aggregation, rows)
        calls = [read_aggregate(column, where) for column in aggregation.aggregates]
        keys: list[Column] = [as_column(key) for key in aggregation.keys]
        if any("session_window(" in column_text(column).lower() for column in keys):
            raise TopologyException(
                f"{where}: session_window() is not supported: sessions would not be merged from one micro-batch to the "
                "next. F.window is"
            )
        # Spark checks the aggregates' types for us, on a plan that never runs.
        grouped = checked(where, lambda: rows.groupBy(*aggregation.keys).agg(*_columns(aggregation)))
        check_groupable(StructType(grouped.schema.fields[: len(aggregation.keys)]), where)
        self._grouped[aggregation.store] = grouped.schema
        # Without an alias, some expressions have another name in select() than in groupBy(): d, and CAST(d AS INT).
        selected = checked(where, lambda: rows.select(*keys)).columns
        keys = [
            key if name == wanted else key.alias(wanted)
            for key, name, wanted in zip(keys, selected, grouped.columns, strict=False)
        ]
        arguments = [
            call.argument.alias(_argument(index)) for index, call in enumerate(calls) if call.argument is not None
        ]
        times = []
        if aggregation.watermark is not None:
            times.append(event_time(aggregation, rows).alias(hidden_columns.EVENT_TIME))
        projected = checked(where, lambda: rows.select(*keys, *arguments, *_carried(leg), *times, *self._way.hidden))
        if "*" in aggregation.text:
            refuse_hidden(where, aggregation.text, projected)
        return projected

    def _newest(self, leg: Leg, table: Aggregation, rows: DataFrame) -> DataFrame:
        """Return a table's rows as its store takes them in."""
        where = str(table.call_site)
        keys = checked(where, lambda: rows.select(*table.keys)).columns
        schema = self._grouped[table.store] = newest_schema(table, rows, keys)
        names = (*schema.names, *_carried(leg), *self._way.hidden)
        return checked(where, lambda: rows.select(*(quoted((name,)) for name in names)))

    def _stateful(
        self,
        leg: Leg,
        aggregation: Aggregation,
        projected: DataFrame,
        computed: Mapping[str, str],
        *,
        folded: bool = False,
    ) -> tuple[DataFrame, StructType]:
        """Return the leg's reports and its output.

        ``computed`` says what grouping columns are computed from; ``folded`` has the state step run although Spark sees
        no row.
        """
        spec, results, made = self._state_spec(leg, aggregation, projected, computed)
        self._states[leg.id] = spec
        if folded and lets_nothing_through(projected):
            projected = _no_rows(self._way.placed(), projected.schema)
        self._made[aggregation.store] = made
        self._contents[aggregation.store] = spec.contents
        if not leg.after and leg.action is None:
            output = self._output(leg, results, lambda _: made)
            publish = self._publish_spec(leg, results, output)
            both = functools.partial(state_and_publish_leg, spec, publish)
            return self._way.last(leg.id, projected, both), output
        emitted = StructType([*results, *hidden_fields(_emitted(leg, aggregation))])
        updates = self._way.between(leg.id, projected, functools.partial(state_leg, spec), emitted)
        return self._behind_table(leg, updates, _emitted(leg, aggregation), made, folded=folded)

    def _built_from_changes(self, leg: Leg, store: str) -> PreparedLeg:
        """Build a leg that goes on from the changes of a store, which another leg keeps and has left in its journal."""
        schema = StructType([*self._table(store), *hidden_fields(_CHANGES)])
        spec = ChangesSpec(
            **self._step(leg),
            store=store,
            contents=self._contents[store],
            output=arrow_schema(schema),
            map_limit=self._config.store_max_bytes,
        )
        rows = self._way.source(leg.id, functools.partial(changes_leg, spec), schema)
        reports, output = self._behind_table(leg, rows, _CHANGES, self._made[store])
        return PreparedLeg(leg, reports, must_rebuild(reports), lets_nothing_through(reports), output)

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
        hidden = (*emitted, *self._way.hidden)
        for index, step in enumerate(leg.after):
            if step.is_union:
                self._check_united(step, apply_steps(leg.after[:index], updates, hidden))
        rows = apply_steps(leg.after[: leg.table_steps], updates, hidden, table_steps=leg.table_steps)
        base = updates
        if hidden_columns.CHANGE in emitted:
            made = computed_from(rows, updates, visible(rows).names, made)
            rows = base = self._settled(leg, rows)
            hidden = (*_SETTLED, *self._way.hidden)
        rows = apply_steps(leg.after[leg.table_steps :], rows, hidden)
        columns = visible(rows)
        output = self._output(leg, columns, lambda names: computed_from(rows, base, names, made))
        if leg.action is not None:
            rows, last = self._acted(leg, leg.action, rows, hidden)
        else:
            last = functools.partial(publish_leg, self._publish_spec(leg, columns, output))
        if folded and lets_nothing_through(rows):
            rows = _no_rows(updates, rows.schema)
        return self._way.last(leg.id, rows, last), output

    def _acted(
        self, leg: Leg, action: Show | Foreach, rows: DataFrame, hidden: tuple[str, ...]
    ) -> tuple[DataFrame, functools.partial[Iterator[pa.RecordBatch]]]:
        """Return the rows that a leg's action wants, and its last step."""
        columns = without_kafka(visible(rows))
        names = [quoted((name,)) for name in columns.names]
        if isinstance(action, Show):
            # Bytes are read as text, as those of Kafka's keys and values mostly are.
            texts = [F.make_valid_utf8(F.col(name).cast("string")) for name in names]
            shown = [text.alias(field.name) for text, field in zip(texts, columns, strict=True)]
            rows = checked(str(action.call_site), lambda: rows.select(*shown, *hidden))
            text = StructType([StructField(field.name, StringType()) for field in columns])
            spec = ActionSpec(**self._step(leg), columns=arrow_schema(text), rows=action.rows, width=action.width)
        else:
            rows = rows.select(*names, *hidden)
            spec = ActionSpec(
                **self._step(leg), columns=arrow_schema(columns), function=action.function, schema=columns.json()
            )
        return rows, functools.partial(act_leg, spec)

    def _settled(self, leg: Leg, rows: DataFrame) -> DataFrame:
        """Return what a table's filters make of the changes of its rows: new rows, and deletions."""
        output = StructType([*visible(rows), *hidden_fields(_SETTLED)])
        keys: tuple[str, ...] = ()
        if leg.sink is not None and not leg.sink.internal and leg.table_steps == len(leg.after):
            keys = plan_sink(leg, leg.sink, visible(rows)).key
        spec = SettleSpec(**self._step(leg), keys=keys, output=arrow_schema(output))
        return self._way.between(leg.id, rows, functools.partial(settle_leg, spec), output)

    def _state_spec(
        self, leg: Leg, aggregation: Aggregation, projected: DataFrame, computed: Mapping[str, str]
    ) -> tuple[StateSpec, StructType, Mapping[str, str]]:
        """Return the state step, the columns that it emits, and what those are computed from."""
        where = str(aggregation.call_site)
        results = self._grouped[aggregation.store]
        twice = [name for name in results.names if results.names.count(name) > 1]
        if twice:
            raise TopologyException(f"{where}: two columns of the result have the name {twice[0]!r}; use alias()")
        width = len(aggregation.keys)
        keys = results.fields[:width]
        states = []
        texts = projected_sql(projected)
        held = {}
        aggregated = () if aggregation.newest else results.fields[width:]
        for index, (column, result) in enumerate(zip(aggregation.aggregates, aggregated, strict=True)):
            call = read_aggregate(column, where)
            argument = None if call.argument is None else projected.schema[_argument(index)]
            states.append(aggregate_spec(call.function, argument, result, where))
            held[result.name] = (
                "count(*)"
                if argument is None
                else f"{call.function}({texts[argument.name]}) of {argument.dataType.simpleString()}"
            )
        newest = StructType(results.fields[width:]) if aggregation.newest else None
        if newest is not None:
            held = {"newest row": f"newest row of {newest.simpleString()}"}
        watermark = watermark_spec(aggregation, projected, keys, self._config.event_time_after_max_ms)
        # The newest timestamp of a group is kept with its state and becomes the timestamp of what it emits.
        states.append(AggregateSpec("max", hidden_columns.TIMESTAMP, pa.int64(), pa.int64()))
        spec = StateSpec(
            **self._step(leg),
            store=aggregation.store,
            changelog=self._names.changelog(aggregation.store) if aggregation.logged else None,
            keys=tuple(field.name for field in keys),
            aggregates=tuple(states),
            input=arrow_schema(StructType([f for f in projected.schema if f.name not in self._way.hidden])),
            output=arrow_schema(StructType([*results, *hidden_fields(_emitted(leg, aggregation))])),
            # Neither can go on with what the other wrote: not all of it is in the changelog.
            contents=_brief(
                f"{', '.join(held.values())} by {', '.join(_key(f, computed) for f in keys)}"
                f"{'' if watermark is None else f', {watermark.window} ends'}"
                f"{'' if aggregation.logged else ', without changelog'}{self._spread(leg)}"
            ),
            compression=self._compression,
            flush_seconds=self._flush_seconds,
            map_limit=self._config.store_max_bytes,
            watermark=watermark,
            newest=None if newest is None else arrow_schema(newest),
            looked_up_by=frozenset(
                self._names(topic, other.source.internal)
                for other in self._legs
                if any(lookup.store == aggregation.store for lookup in other.lookups)
                for topic in other.source.topics
            ),
            kept=arrow_schema(StructType([*results, *hidden_fields(_CHANGES)]))
            if any(other.changes_of == aggregation.store for other in self._legs)
            else None,
        )
        return spec, results, {**held, **computed}

    def _spread(self, leg: Leg) -> str:
        """Say what decides in which partition a store's rows are: by another one, a group's rows go to another task.

        A topic that users write is spread by the message key, in whatever way their producers have.
        """
        if not leg.source.internal:
            return f"{SPREAD_BY}the message key"
        writers = (writer.sink for writer in self._legs if writer.sink is not None and writer.sink.internal)
        key = next(sink.key for sink in writers if sink.topic in leg.source.topics)
        assert isinstance(key, tuple), "a repartition topic is written by columns"
        return f"{SPREAD_BY}{', '.join(key)}"

    # -- sink -----------------------------------------------------------------------------------------------------

    def _publish_spec(self, leg: Leg, columns: StructType, output: StructType) -> PublishSpec:
        """Return the last step; of ``columns``, ``output`` are those that go on. The key may be of the others."""
        sink = leg.sink
        topic: str | None = None
        plan = SinkPlan(Json(), StructType(), (), headers=False)
        if sink is not None:
            topic = self._names(sink.topic, sink.internal)
            plan = plan_sink(leg, sink, columns)
            if sink.internal:
                key = [columns[name] for name in plan.key if name in columns.names]
                check_packable(StructType([*output, *key]), str(sink.call_site))
        return PublishSpec(
            **self._step(leg),
            topic=topic,
            columns=tuple(output.names if sink is not None and sink.internal else plan.columns.names),
            key_columns=plan.key,
            value=None if sink is not None and sink.internal else plan.format,
            layout=layout_number(output) if sink is not None and sink.internal else 0,
            headers=plan.headers,
            compression=self._compression,
            flush_seconds=self._flush_seconds,
        )


def _with_unread(source: DataFrame, full: StructType) -> DataFrame:
    """Add the columns that nothing reads, as nulls: a step whose result is not used names them all the same."""
    there = set(source.columns)
    if len(there) == len(full):
        return source
    return source.select(
        *(
            F.col(quoted((field.name,))) if field.name in there else F.lit(None).cast(field.dataType).alias(field.name)
            for field in full
        )
    )


def _no_rows(before: DataFrame, schema: StructType) -> DataFrame:
    """Return a frame of that schema that runs ``before`` and has no rows, which Spark does not know."""
    return in_arrow(before, no_rows, schema)


_EMITTED = (hidden_columns.PARTITION, hidden_columns.TIMESTAMP, hidden_columns.KEY)
_SETTLED = (*_EMITTED, hidden_columns.TOMBSTONE)
#: Of the rows of a table as they were and as they are.
_CHANGES = (*_EMITTED, hidden_columns.CHANGE)


def _emitted(leg: Leg, aggregation: Aggregation) -> tuple[str, ...]:
    """Return the hidden columns of the rows that a stateful step emits."""
    if leg.filters_table:
        return _CHANGES
    return (*_EMITTED, hidden_columns.TOMBSTONE) if aggregation.newest else _EMITTED


def _keeps_newest(leg: Leg) -> bool:
    return leg.aggregation is not None and leg.aggregation.newest


def _carried(leg: Leg) -> tuple[str, ...]:
    """Return the hidden columns that a leg's source rows carry."""
    newest = _keeps_newest(leg)
    names = [hidden_columns.PARTITION, hidden_columns.TIMESTAMP]
    if leg.aggregation is None:
        names += [hidden_columns.KEY, hidden_columns.TOMBSTONE]
    elif newest:
        names.append(hidden_columns.TOMBSTONE)
    if newest or leg.lookups:
        names.append(hidden_columns.PARTITION_TIME)
    return tuple(names)


def _by_lookup(steps: Sequence[Step | Lookup]) -> Iterator[tuple[tuple[Step, ...], Lookup | None]]:
    """Yield the steps in front of each lookup with it, and those behind the last one."""
    some: list[Step] = []
    for step in steps:
        if isinstance(step, Lookup):
            yield tuple(some), step
            some = []
        else:
            some.append(step)
    yield tuple(some), None


def _repartitions(leg: Leg) -> bool:
    return leg.sink is not None and leg.sink.internal


def _key(field: StructField, computed: Mapping[str, str]) -> str:
    """Describe a grouping column: its name and type, and what it is computed from unless it is a column of the source.

    Structs that may be null say so: their nulls once had the key of a struct of nulls.
    """
    made = f" = {computed[field.name]}" if field.name in computed else ""
    null = " or null" if isinstance(field.dataType, StructType) and field.nullable else ""
    return f"{field.name} {field.dataType.simpleString()}{null}{made}"


def _brief(text: str) -> str:
    """Return a text that fits into the state's small records: a very long one ends with a digest of it all."""
    if len(text) <= _LONGEST_CONTENTS:
        return text
    return f"{text[:_LONGEST_CONTENTS]}... (sha256 {hashlib.sha256(text.encode()).hexdigest()})"


def _argument(index: int) -> str:
    return f"{hidden_columns.PREFIX}argument_{index}"


def _columns(aggregation: Aggregation) -> list[Column]:
    return [
        getattr(F, a.function)(a.column or "*").alias(a.name) if isinstance(a, NamedAggregate) else a
        for a in aggregation.aggregates
    ]


def _decoded_fields(key: Format | None, value: Format | None, where: str) -> list[StructField]:
    fields = {} if value is None else {field.name: field for field in format_fields(value, "value", where)}
    if key is not None:
        # The key's column wins over a field of the same name and type: it is what decides the partition.
        for field in format_fields(key, "key", where):
            same = fields.get(field.name)
            if same is not None and same.dataType != field.dataType:
                raise TopologyException(
                    f"{where}: column {field.name!r} is both the message key ({field.dataType.simpleString()}) and a "
                    f"field of the value ({same.dataType.simpleString()}), and would hide it; give the key's column "
                    'another name, such as key=String("message_key")'
                )
            fields[field.name] = field
    if "kafka" in fields:
        raise TopologyException(f"{where}: a field named 'kafka' clashes with the struct of Kafka's own columns")
    for name in fields:
        if name.startswith(hidden_columns.PREFIX):
            raise TopologyException(f"{where}: the column name {name!r} is reserved")
    return list(fields.values())
