"""What stores hold, in words: a pipeline whose words are others is rejected, as it would take the state for its own."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from sparkrelay.state.batch import SPREAD_BY

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sparkrelay.operators.watermarks import WindowWatermark
    from sparkrelay.topology import Leg
    from sparkrelay.topology.rows import Rows

#: Longest description of a store's contents, in characters.
_LONGEST_CONTENTS = 2000


def contents(
    held: Iterable[str], taken: Rows, keys: Iterable[str], *, watermark: WindowWatermark | None, logged: bool, by: str
) -> str:
    """Describe a store's contents.

    Args:
        held: descriptions of its aggregates, or of its rows' columns.
        taken: what its step takes in.
        keys: its grouping columns.
        watermark: when its windows close, or None.
        logged: whether it has a changelog. A store with a watermark or a changelog cannot continue from one without,
            nor the reverse: not all of it is in the changelog.
        by: what decides the partition of its rows.
    """
    over = "" if watermark is None else f", over with {watermark.window}"
    without = "" if logged else ", without changelog"
    return brief(f"{', '.join(held)} by {', '.join(key_text(taken, key) for key in keys)}{over}{without}{by}")


def key_text(taken: Rows, name: str) -> str:
    """Describe a grouping column: name, type, and what it is made of unless it is a source's column.

    Nullable structs are marked: their nulls once had the key of a struct of nulls.
    """
    column = next(column for column in taken.columns if column.name == name)
    words = taken.words(column.number)
    made = f" = {words}" if words != name else ""
    null = " or null" if isinstance(column.field.dataType, StructType) and column.field.nullable else ""
    return f"{name} {column.field.dataType.simpleString()}{null}{made}"


def brief(text: str) -> str:
    """Return a text that fits into the state's small records: a very long one is cut and gets a digest."""
    if len(text) <= _LONGEST_CONTENTS:
        return text
    return f"{text[:_LONGEST_CONTENTS]}... (sha256 {hashlib.sha256(text.encode()).hexdigest()})"


def spread(leg: Leg, legs: Sequence[Leg]) -> str:
    """Describe what decides the partition of a store's rows; with another rule, groups belong to other tasks.

    Users' topics are partitioned by the message key, in whatever way their producers do it.
    """
    return f"{SPREAD_BY}{', '.join(repartitioned_by(leg, legs)) or 'the message key'}"


def repartitioned_by(leg: Leg, legs: Sequence[Leg]) -> tuple[str, ...]:
    """Return the columns that decide a row's partition in a repartition topic; none for a user's topic."""
    if not leg.source.internal:
        return ()
    writers = (writer.sink for writer in legs if writer.sink is not None and writer.sink.internal)
    key = next(sink.key for sink in writers if sink.topic in leg.source.topics)
    assert isinstance(key, tuple), "a repartition topic is written by columns"
    return key
