"""Joins of two streams on DataFrames: what a leg gives to the step that joins, and what comes out of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from sparkrelay.errors import TopologyException
from sparkrelay.runtime.compile.carried_columns import EMITTED
from sparkrelay.runtime.compile.catalyst import java, named
from sparkrelay.runtime.compile.column_names import columns_there_are
from sparkrelay.runtime.compile.grouping import brief, key_text, spread
from sparkrelay.runtime.compile.row_steps import checked
from sparkrelay.runtime.compile.schemas import arrow_schema, check_groupable, check_packable, hidden_fields
from sparkrelay.runtime.compile.watermarks import event_time, interval_us, timed_sources
from sparkrelay.runtime.contract import hidden_columns
from sparkrelay.runtime.contract.emitting_specs import LEFT_ONLY, JoinSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from sparkrelay.config import StreamsConfig
    from sparkrelay.runtime.topics.topic_names import TopicNames
    from sparkrelay.topology import Leg, StreamJoin

__all__ = ["JoinSide", "JoinSides", "join_input", "join_output", "join_spec", "nullable"]

#: A longer range of time, in microseconds, would be beyond what a row's can be, and what its number holds.
_LONGEST_US: Final = 10_000 * 366 * 24 * 3_600 * 1_000_000
_A_DAY_US: Final = 24 * 3_600 * 1_000_000
#: Legs of one join; by their numbers a micro-batch's rows are told apart.
_MOST_LEGS = 64


@dataclass(frozen=True, slots=True)
class JoinSide:
    """One stream of a join, as it comes to it.

    Attributes:
        columns: that users see, without Kafka's own.
        computed: what columns of it are computed from; those that are columns of its source as they are, are left out.
        join: what the topology says of it.
    """

    columns: StructType
    computed: Mapping[str, str]
    join: StreamJoin


class JoinSides:
    """The streams of every join of a topology, as far as their columns are known."""

    def __init__(self, legs: Sequence[Leg], ended: Container[str], build: Callable[[Leg], JoinSide]) -> None:
        """Begin with none.

        Args:
            legs: of the topology.
            ended: the repartition topics whose columns are known by now.
            build: returns one stream as it comes to its join.
        """
        self._legs = [leg for leg in legs if leg.join is not None]
        self._ended = ended
        self._build = build
        self._built: dict[str, dict[str, JoinSide]] = {}

    def known(self, join: StreamJoin) -> bool:
        """Return whether both can be built: what comes through a repartition topic, once its writer is."""
        own = [leg for leg in self._legs if leg.store == join.store]
        return all(leg.source.topics[0] in self._ended for leg in own if leg.source.internal)

    def of(self, join: StreamJoin) -> dict[str, JoinSide]:
        """Return both, by side."""
        if join.store not in self._built:
            # Of a union the first stream: the others have the same columns.
            first = {leg.join.side: leg for leg in reversed(self._legs) if leg.join and leg.store == join.store}
            self._built[join.store] = {side: self._build(first[side]) for side in ("left", "right")}
        return self._built[join.store]


def join_output(sides: Mapping[str, JoinSide]) -> StructType:
    """Return the columns behind a join: its own, then the left stream's others, then the right one's.

    Raises:
        TopologyException: a column is missing, of another type on the other side, no key, or stands on both sides.
    """
    left, right = sides["left"], sides["right"]
    join = left.join
    where = f"{join.call_site}: {join.text}"
    for name in join.columns:
        for word, side in sides.items():
            if name not in side.columns.names:
                raise TopologyException(
                    f"{where}: the {word} stream has no column {name!r}; it has "
                    f"{columns_there_are(side.columns.names, name)}"
                )
        kinds = [side.columns[name].dataType for side in (left, right)]
        if kinds[0] != kinds[1]:
            raise TopologyException(
                f"{where}: {name!r} is {kinds[0].simpleString()} in the left stream and {kinds[1].simpleString()} in "
                "the right one, so equal values have other bytes; cast one of them"
            )
    keys = [StructField(name, left.columns[name].dataType) for name in join.columns]
    check_groupable(StructType(keys), where)
    if join.how in LEFT_ONLY:
        return StructType([*keys, *_others(left)])
    names = {field.name.lower() for field in _others(left)} | {name.lower() for name in join.columns}
    both = [field.name for field in _others(right) if field.name.lower() in names]
    if both:
        raise TopologyException(
            f"{where}: both streams have a column {both[0]!r}; rename or drop one of them before the join"
        )
    return StructType(
        [
            *keys,
            *_others(left, alone=join.how in {"right", "full"}),
            *_others(right, alone=join.how in {"left", "full"}),
        ]
    )


def join_input(
    join: StreamJoin, rows: DataFrame, side: JoinSide, read: frozenset[str], hidden: Iterable[str]
) -> DataFrame:
    """Return the rows that the step takes in: keys, columns that are read behind it, times, and hidden columns."""
    hidden = [name for name in hidden if name != hidden_columns.PARTITION_TIME]
    kept = [field.name for field in _kept(side, read)]
    time = F.unix_micros(event_time(join, rows)).alias(hidden_columns.EVENT_MICROS)
    columns = named((*join.columns, *kept, *hidden))
    return checked(str(join.call_site), lambda: rows.select(*columns, time))


def join_spec(
    leg: Leg,
    join: StreamJoin,
    sides: Mapping[str, JoinSide],
    read: frozenset[str],
    rows: DataFrame,
    *,
    legs: Sequence[Leg],
    names: TopicNames,
    config: StreamsConfig,
    step: Mapping[str, Any],
) -> JoinSpec:
    """Return the step that joins a leg's rows.

    Args:
        leg: the leg.
        join: its stateful step.
        sides: both streams.
        read: the columns that anything reads behind it.
        rows: what it takes in.
        legs: of the topology.
        names: Kafka's names of its topics.
        config: the instance's settings.
        step: what every step knows, and how this one writes its changelog.

    Raises:
        TopologyException: an interval is none, or a column cannot be kept.
    """
    where = f"{join.call_site}: {join.text}"
    output = join_output(sides)
    keys = StructType(output.fields[: len(join.columns)])
    kept = {word: nullable(_kept(side, read)) for word, side in sides.items()}
    for row in kept.values():
        check_packable(row, where)
    own = [other for other in legs if other.join is not None and other.join.store == join.store]
    if len(own) > _MOST_LEGS:
        raise TopologyException(f"{where}: it is of {len(own)} streams, by union(); {_MOST_LEGS} are the most")
    number = next(index for index, other in enumerate(own) if other.id == leg.id)
    earlier_us, later_us = (
        interval_us(rows, span, f"{join.call_site}: within={span!r} of join(), read as a delay") for span in join.within
    )
    if earlier_us + later_us > _LONGEST_US:
        raise TopologyException(f"{where}: it spans more than 10,000 years; give a shorter one")
    if join.by_condition and max(earlier_us, later_us) >= _A_DAY_US:
        _require_days_of_24_hours(rows.sparkSession, where)
    times = {
        other.id: sides[other.join.side].computed.get(other.join.watermark[0], other.join.watermark[0])
        for other in own
        if other.join is not None
    }
    sources, own_sources = timed_sources(own, leg, rows, names, where, times=times)
    fields = [field for field in output if field.name in read or field.name in join.columns]
    return JoinSpec(
        **step,
        store=join.store,
        changelog=names.changelog(join.store) if join.logged else None,
        contents=_contents(sides, keys, kept, (earlier_us, later_us), spread(own[0], legs)),
        side=join.side,
        how=join.how,
        keys=arrow_schema(nullable(keys)),
        rows={word: arrow_schema(row) for word, row in kept.items()},
        output=arrow_schema(nullable([*fields, *hidden_fields(EMITTED)])),
        earlier_us=earlier_us,
        later_us=later_us,
        delay_ms=next(source.delay_ms for source in sources if source.name in own_sources),
        ahead_ms=config.event_time_after_max_ms,
        sources=sources,
        own_sources=own_sources,
        later=frozenset(
            names(topic, other.source.internal) for other in own[number + 1 :] for topic in other.source.topics
        ),
        number=number,
    )


def _require_days_of_24_hours(spark: SparkSession, where: str) -> None:
    """Refuse a zone in which Spark, which adds days of the calendar to a time, adds 23 hours now and then, or 25."""
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    if not java("org.apache.spark.sql.catalyst.util.DateTimeUtils").getZoneId(zone).getRules().isFixedOffset():
        raise TopologyException(
            f"{where}: in the session's time zone, {zone}, a day may have 23 or 25 hours, and Spark adds such days "
            "where a condition has an interval of a day or more; set spark.sql.session.timeZone to UTC, or say "
            "within= instead, whose days have 24 hours"
        )


def _others(side: JoinSide, *, alone: bool = False) -> list[StructField]:
    """Return the columns of a stream beside the keys; all may be null where rows of the other one go out alone."""
    return [
        StructField(field.name, field.dataType, alone or field.nullable, field.metadata)
        for field in side.columns
        if field.name not in side.join.columns
    ]


def _kept(side: JoinSide, read: frozenset[str]) -> list[StructField]:
    """Return the columns of a stream that are kept beside the keys."""
    none = side.join.how in LEFT_ONLY and not side.join.is_left
    return [] if none else [field for field in _others(side) if field.name in read]


def nullable(fields: Iterable[StructField]) -> StructType:
    """Return columns any of which may be null: a row that goes out alone has none of the other stream's."""
    hidden = hidden_columns.PREFIX
    return StructType([f if f.name.startswith(hidden) else StructField(f.name, f.dataType) for f in fields])


def _contents(
    sides: Mapping[str, JoinSide], keys: StructType, kept: Mapping[str, StructType], span: tuple[int, int], by: str
) -> str:
    """Say what the store holds: a pipeline that says something else of it is refused."""
    held = []
    for word, side in sides.items():
        time = side.join.watermark[0]
        own = ", ".join(key_text(field, side.computed) for field in keys)
        held.append(f"the {word} stream's {kept[word].simpleString()} by {own} at {side.computed.get(time, time)}")
    how = sides["left"].join.how
    notes = "" if how in {"inner", "left_semi"} else ", with notes of what goes out alone"
    return brief(f"{how} join from {-span[0]} to {span[1]} us of {' and '.join(held)}{notes}{by}")
