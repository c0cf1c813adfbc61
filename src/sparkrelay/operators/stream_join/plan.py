"""Joins of two streams on DataFrames."""

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

#: Longest range of time, in µs: more than the range of event times, and safe in 64 bits.
_LONGEST_US: Final = 10_000 * 366 * 24 * 3_600 * 1_000_000
_A_DAY_US: Final = 24 * 3_600 * 1_000_000
#: Maximum number of legs of a join; their numbers are part of the store's keys.
_MOST_LEGS = 64


class Plan(EmittingPlan[StreamJoin]):
    """See :class:`EmittingPlan`."""

    @property
    def known(self) -> bool:
        """Whether the columns of both streams are known."""
        return all(leg.source.topics[0] in self.around.ended for leg in self._legs if leg.source.internal)

    @functools.cached_property
    def _legs(self) -> list[Leg]:
        """The legs of both streams; a union has several."""
        return [leg for leg in self.around.legs if leg.join is not None and leg.store == self.step.store]

    @functools.cached_property
    def _sides(self) -> dict[str, JoinSide]:
        """Both streams, by side."""
        # The first stream of a union: the others have the same columns.
        first = {leg.join.side: leg for leg in reversed(self._legs) if leg.join is not None}
        return {side: self.around.side(first[side]) for side in ("left", "right")}

    def columns(self, before: StructType) -> StructType:
        """Return the output columns: the join's, then the left stream's others, then the right one's.

        Raises:
            TopologyException: a column is missing, differs in type, is unsuitable as key, or exists on both sides.
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
                    "in the right one, so their encoded keys differ; cast one of them"
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
        """Return column -> expression of both streams."""
        del before
        return {**self._sides["right"].computed, **self._sides["left"].computed}

    def taken(self, step: StreamJoin, rows: DataFrame, read: frozenset[str], hidden: Iterable[str]) -> DataFrame:
        """Return key columns, columns read downstream, hidden columns, and event times."""
        hidden = [name for name in hidden if name != hidden_columns.PARTITION_TIME]
        kept = [field.name for field in _kept(self._sides[step.side], read)]
        time = F.unix_micros(event_time(step, rows)).alias(hidden_columns.EVENT_MICROS)
        return checked(str(step.call_site), lambda: rows.select(*named((*step.columns, *kept, *hidden)), time))

    def runner(  # noqa: PLR0917
        self,
        leg: Leg,
        taken: DataFrame,
        columns: StructType,
        read: frozenset[str],
        computed: Mapping[str, str],
        fields: Mapping[str, Any],
    ) -> tuple[JoinStreams, StructType]:
        """Return the leg's runner, and its output columns.

        Raises:
            TopologyException: an interval is invalid, or a column cannot be stored.
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
            raise TopologyException(
                f"{where}: it joins {len(own)} streams, by union(); at most {_MOST_LEGS} can be joined"
            )
        number = next(index for index, other in enumerate(own) if other.id == leg.id)
        earlier_us, later_us = (
            interval_us(taken, span, f"{join.call_site}: within={span!r} of join(), read as a delay")
            for span in join.within
        )
        if earlier_us + later_us > _LONGEST_US:
            raise TopologyException(f"{where}: it spans more than 10,000 years; use a shorter range")
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
            later=frozenset(names.sources(*own[number + 1 :])),
            number=number,
        )
        return made, output


def _require_days_of_24_hours(spark: SparkSession, where: str) -> None:
    """Reject time zones with days of 23 or 25 hours: Spark's intervals of a day are calendar days."""
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    if not java("org.apache.spark.sql.catalyst.util.DateTimeUtils").getZoneId(zone).getRules().isFixedOffset():
        raise TopologyException(
            f"{where}: in the session's time zone, {zone}, a day may have 23 or 25 hours, and intervals of a day or "
            "more in a condition are such days; set spark.sql.session.timeZone to UTC, or use within=, whose days "
            "have 24 hours"
        )


def _others(side: JoinSide, *, alone: bool = False) -> list[StructField]:
    """Return the columns of a stream without the keys; nullable if rows of the other stream can be unmatched."""
    return [
        StructField(field.name, field.dataType, alone or field.nullable, field.metadata)
        for field in side.columns
        if field.name not in side.join.columns
    ]


def _kept(side: JoinSide, read: frozenset[str]) -> list[StructField]:
    """Return the stored columns of a stream without the keys."""
    none = side.join.how in LEFT_ONLY and not side.join.is_left
    return [] if none else [field for field in _others(side) if field.name in read]


def _contents(
    sides: Mapping[str, JoinSide], keys: StructType, kept: Mapping[str, StructType], span: tuple[int, int], by: str
) -> str:
    """Describe the store's contents; a pipeline with another description is rejected."""
    held = []
    for word, side in sides.items():
        time = side.join.watermark[0]
        own = ", ".join(key_text(field, side.computed) for field in keys)
        held.append(f"the {word} stream's {kept[word].simpleString()} by {own} at {side.computed.get(time, time)}")
    how = sides["left"].join.how
    notes = "" if how in {"inner", "left_semi"} else ", with notes of what goes out alone"
    return brief(f"{how} join from {-span[0]} to {span[1]} us of {' and '.join(held)}{notes}{by}")
