"""Joins of two streams, as the compiler plans them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from sparkrelay import hidden_columns
from sparkrelay.errors import TopologyException
from sparkrelay.operators.emitting.plan import EmittingPlan
from sparkrelay.operators.stream_join.run import JoinStreams
from sparkrelay.operators.stream_join.step import LEFT_ONLY, StreamJoin
from sparkrelay.runtime.compile.carried_columns import EMITTED
from sparkrelay.runtime.compile.contents import brief, key_text, spread
from sparkrelay.runtime.compile.timed_sources import timed_fields
from sparkrelay.topology.schemas import arrow_schema, check_packable, hidden_fields, nullable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.topology import Leg

#: Maximum number of legs of a join; their numbers are part of the store's keys.
_MOST_LEGS = 64


class Plan(EmittingPlan[StreamJoin]):
    """See :class:`EmittingPlan`."""

    def needs(self, read: frozenset[str]) -> frozenset[str]:
        """Return key columns, columns read downstream, and event times."""
        return read | {*self.step.columns, hidden_columns.EVENT_MICROS}

    def runner(
        self, leg: Leg, taken: StructType, read: frozenset[str], fields: Mapping[str, Any]
    ) -> tuple[JoinStreams, StructType]:
        """Return the leg's runner, and its output columns.

        Raises:
            TopologyException: too many streams are joined, or a column cannot be stored.
        """
        del taken
        join = self.step
        # The legs of both streams; a union has several.
        own = [one for one in self.around.legs if one.join is not None and one.store == join.store]
        where = f"{join.call_site}: {join.text}"
        # The first stream of a union: the others have the same columns.
        sides = {one.join.side: one for one in reversed(own) if one.join is not None}
        kept = {word: _kept(side, word, join, read) for word, side in sides.items()}
        for row in kept.values():
            check_packable(row, where)
        if len(own) > _MOST_LEGS:
            raise TopologyException(
                f"{where}: it joins {len(own)} streams, by union(); at most {_MOST_LEGS} can be joined"
            )
        number = next(index for index, other in enumerate(own) if other.id == leg.id)
        output = StructType([field for field in join.made if field.name in read or field.name in join.columns])
        output = nullable([*output, *hidden_fields(EMITTED)])
        keys = StructType(join.made.fields[: len(join.columns)])
        made = JoinStreams(
            **fields,
            **timed_fields(leg, join, self.around, legs=own),
            contents=_contents(join, sides, kept, spread(own[0], self.around.legs)),
            side=join.side,
            how=join.how,
            keys=arrow_schema(nullable(keys)),
            rows={word: arrow_schema(row) for word, row in kept.items()},
            output=arrow_schema(output),
            earlier_us=join.span_us[0],
            later_us=join.span_us[1],
            later=frozenset(self.around.names.sources(*own[number + 1 :])),
            number=number,
        )
        return made, output


def _kept(leg: Leg, side: str, join: StreamJoin, read: frozenset[str]) -> StructType:
    """Return the stored columns of a stream without the keys."""
    if join.how in LEFT_ONLY and side == "right":
        return StructType()
    others = (field for field in leg.taken.schema if field.name not in join.columns)
    return nullable(field for field in others if field.name in read)


def _contents(join: StreamJoin, sides: Mapping[str, Leg], kept: Mapping[str, StructType], by: str) -> str:
    """Describe the store's contents; a pipeline with another description is rejected."""
    held = []
    for word in ("left", "right"):
        leg = sides[word]
        own = ", ".join(key_text(leg.taken, name) for name in join.columns)
        assert leg.join is not None
        held.append(f"the {word} stream's {kept[word].simpleString()} by {own} at {leg.join.watermark.column}")
    notes = "" if join.how in {"inner", "left_semi"} else ", with notes of what goes out alone"
    return brief(f"{join.how} join from {-join.span_us[0]} to {join.span_us[1]} us of {' and '.join(held)}{notes}{by}")
