"""Joins of two streams on DataFrames: what a leg gives to the step that joins, and what comes out of it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from sparkrelay.errors import TopologyException
from sparkrelay.operators.emitting.plan import EmittingPlan
from sparkrelay.operators.stream_join.run import JoinStreams
from sparkrelay.operators.stream_join.step import LEFT_ONLY, StreamJoin
from sparkrelay.runtime.compile.carried_columns import EMITTED
from sparkrelay.runtime.compile.catalyst import java, named
from sparkrelay.runtime.compile.column_names import columns_there_are
from sparkrelay.runtime.compile.grouping import brief, key_text, spread
from sparkrelay.runtime.compile.row_steps import checked
from sparkrelay.runtime.compile.schemas import arrow_schema, check_groupable, check_packable, hidden_fields, nullable
from sparkrelay.runtime.compile.watermarks import event_time, interval_us, timed_fields
from sparkrelay.runtime.contract import hidden_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from sparkrelay.operators.emitting.plan import JoinSide
    from sparkrelay.topology import Leg

__all__ = ["Plan"]

#: A longer range of time, in microseconds, would be beyond what a row's can be, and what its number holds.
_LONGEST_US: Final = 10_000 * 366 * 24 * 3_600 * 1_000_000
_A_DAY_US: Final = 24 * 3_600 * 1_000_000
#: Legs of one join; by their numbers a micro-batch's rows are told apart.
_MOST_LEGS = 64


class Plan(EmittingPlan[StreamJoin]):
    """See :class:`EmittingPlan`."""

    @property
    def known(self) -> bool:
        """Whether both streams can be built: what comes through a repartition topic, once its writer is."""
        return all(leg.source.topics[0] in self.around.ended for leg in self._legs if leg.source.internal)

    @functools.cached_property
    def _legs(self) -> list[Leg]:
        """The legs of both streams; of a union several."""
        return [leg for leg in self.around.legs if leg.join is not None and leg.store == self.step.store]

    @functools.cached_property
    def _sides(self) -> dict[str, JoinSide]:
        """Both streams, by side."""
        # Of a union the first stream: the others have the same columns.
        first = {leg.join.side: leg for leg in reversed(self._legs) if leg.join is not None}
        return {side: self.around.side(first[side]) for side in ("left", "right")}

    def columns(self, before: StructType) -> StructType:
        """Return the columns behind the join, whichever stream ``before`` is of.

        Its own come first, then the left stream's others, then the right one's.

        Raises:
            TopologyException: a column is missing, of another type on the other side, no key, or stands on both sides.
        """
        del before
        sides, join = self._sides, self.step
        left, right = sides["left"], sides["right"]
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
                    f"{where}: {name!r} is {kinds[0].simpleString()} in the left stream and {kinds[1].simpleString()} "
                    "in the right one, so equal values have other bytes; cast one of them"
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
        others = _others(left, alone=join.how in {"right", "full"}), _others(right, alone=join.how in {"left", "full"})
        return StructType([*keys, *others[0], *others[1]])

    def computed(self, before: Mapping[str, str]) -> Mapping[str, str]:
        """Return what is known of both streams."""
        del before
        return {**self._sides["right"].computed, **self._sides["left"].computed}

    def taken(self, step: StreamJoin, rows: DataFrame, read: frozenset[str], hidden: Iterable[str]) -> DataFrame:
        """Return keys, columns that are read behind the join, times, and hidden columns."""
        hidden = [name for name in hidden if name != hidden_columns.PARTITION_TIME]
        kept = [field.name for field in _kept(self._sides[step.side], read)]
        time = F.unix_micros(event_time(step, rows)).alias(hidden_columns.EVENT_MICROS)
        return checked(str(step.call_site), lambda: rows.select(*named((*step.columns, *kept, *hidden)), time))

    def runner(  # noqa: PLR0917 - what is known of one step
        self,
        leg: Leg,
        taken: DataFrame,
        columns: StructType,
        read: frozenset[str],
        computed: Mapping[str, str],
        fields: Mapping[str, Any],
    ) -> tuple[JoinStreams, StructType]:
        """Return what joins a leg's rows, and the columns that leave it.

        Raises:
            TopologyException: an interval is none, or a column cannot be kept.
        """
        del computed
        join, sides, own = leg.join, self._sides, self._legs
        assert join is not None, "a leg of a join"
        where = f"{join.call_site}: {join.text}"
        keys = StructType(columns.fields[: len(join.columns)])
        kept = {word: nullable(_kept(side, read)) for word, side in sides.items()}
        for row in kept.values():
            check_packable(row, where)
        if len(own) > _MOST_LEGS:
            raise TopologyException(f"{where}: it is of {len(own)} streams, by union(); {_MOST_LEGS} are the most")
        number = next(index for index, other in enumerate(own) if other.id == leg.id)
        earlier_us, later_us = (
            interval_us(taken, span, f"{join.call_site}: within={span!r} of join(), read as a delay")
            for span in join.within
        )
        if earlier_us + later_us > _LONGEST_US:
            raise TopologyException(f"{where}: it spans more than 10,000 years; give a shorter one")
        if join.by_condition and max(earlier_us, later_us) >= _A_DAY_US:
            _require_days_of_24_hours(taken.sparkSession, where)
        times = {
            other.id: sides[other.join.side].computed.get(other.join.watermark[0], other.join.watermark[0])
            for other in own
            if other.join is not None
        }
        timed = timed_fields(leg, join, taken, self.around, legs=own, times=times)
        output = StructType([field for field in columns if field.name in read or field.name in join.columns])
        output = nullable([*output, *hidden_fields(EMITTED)])
        names = self.around.names
        made = JoinStreams(
            **fields,
            **timed,
            contents=_contents(sides, keys, kept, (earlier_us, later_us), spread(own[0], self.around.legs)),
            side=join.side,
            how=join.how,
            keys=arrow_schema(nullable(keys)),
            rows={word: arrow_schema(row) for word, row in kept.items()},
            output=arrow_schema(output),
            earlier_us=earlier_us,
            later_us=later_us,
            later=frozenset(
                names(topic, other.source.internal) for other in own[number + 1 :] for topic in other.source.topics
            ),
            number=number,
        )
        return made, output


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
