"""Which columns decide in which task a row is, followed through row-wise steps by Catalyst's numbers.

Grouping needs all rows of a group in one task. They are if the grouping columns include columns of which the message's
partition is a function: the decoded key, Kafka's own ``key``, or Kafka's ``partition``. What is computed of such a
column counts as lost: then a repartition topic is written, which is slower and always right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

#: A column's place, and the places of fields down to one of its.
_Path = tuple[int, ...]

_KEY: Final = "key"
_PARTITION: Final = "partition"
#: Behind it stands a number: which column of the key.
_COLUMN: Final = "column "
_KAFKA_KEY, _KAFKA_PARTITION = 0, 3


@dataclass(frozen=True, slots=True)
class Located:
    """A grouping that finds its rows in their task already.

    Attributes:
        not_null: places of columns whose null stands for a message without a key, which may lie in any partition.
        columns: places of the columns that decide the partition, in the order of the key; None where one is a field,
            or Kafka's ``partition``.
    """

    not_null: tuple[_Path, ...]
    columns: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Spread:
    """The columns at one point that hold an unchanged part of what decides the partition.

    Attributes:
        held: column, or a field of one -> the part that it holds.
        sufficient: sets of parts, each of which decides the partition alone.
        named: the names that the key's columns had where it was read.
    """

    held: Mapping[_Path, str]
    sufficient: tuple[frozenset[str], ...] = ()
    named: tuple[str, ...] = ()

    @classmethod
    def of_source(cls, names: Iterable[str], key: str | None, *, raw: bool) -> Spread:
        """Return that of a stream as it is read.

        Args:
            names: of its columns.
            key: the column of the key; None where it is no column that is one to one with the key's bytes.
            raw: True for a stream without formats, whose columns are Kafka's own.
        """
        places = {name: place for place, name in enumerate(names)}
        held: dict[_Path, str] = {}
        if raw:
            held |= {(places["key"],): _KEY, (places["partition"],): _PARTITION}
        elif "kafka" in places:
            kafka = places["kafka"]
            held |= {(kafka, _KAFKA_KEY): _KEY, (kafka, _KAFKA_PARTITION): _PARTITION}
        if key is not None:
            held[places[key],] = _KEY
        return cls(held, (frozenset({_KEY}), frozenset({_PARTITION})), ("key" if key is None else key,))

    @classmethod
    def of_key(cls, places: Iterable[int], names: Iterable[str]) -> Spread:
        """Return that of rows whose key is made of columns, such as those behind a repartition topic."""
        held: dict[_Path, str] = {(place,): f"{_COLUMN}{index}" for index, place in enumerate(places)}
        if len(held) == 1:
            held = dict.fromkeys(held, _KEY)
        return cls(held, (frozenset(held.values()),) if held else (), tuple(names))

    def locate(self, places: Collection[int]) -> Located | None:
        """Return how grouping by columns finds its rows, or None if they must be repartitioned first."""
        return self.locate_paths({(place,) for place in places})

    def locate_paths(self, paths: Collection[_Path]) -> Located | None:
        """Return the same for columns, and fields of columns."""
        return self._located([(path, part) for path, part in sorted(self.held.items()) if path in paths])

    def _located(self, grouped: list[tuple[_Path, str]]) -> Located | None:
        for parts in self.sufficient:
            if parts <= {part for _, part in grouped}:
                # A key of several columns is never null as a whole, and a partition never is.
                not_null = [path for path, part in grouped if part == _KEY] if parts == {_KEY} else []
                return Located(tuple(not_null[:1]), _key_columns(grouped, parts))
        return None

    def key(self, names: Iterable[str]) -> tuple[int, ...] | None:
        """Return the places of the columns that hold the message key, in its order; None if they are not all there.

        Args:
            names: of all columns: of several that hold a part, the one that has the name it was read under is meant.
        """
        known = [*names]
        held = sorted(self.held.items(), key=lambda one: (known[one[0][0]] not in self.named, one), reverse=True)
        for parts in self.sufficient:
            if parts != {_PARTITION} and (found := _key_columns(held, parts)) is not None:
                return found
        return None

    def copies(self) -> tuple[int, ...]:
        """Return the places of all columns that hold a part of the message key: of a copied one there are several."""
        return tuple(sorted(path[0] for path, part in self.held.items() if len(path) == 1 and part != _PARTITION))


def _key_columns(held: Iterable[tuple[_Path, str]], parts: frozenset[str]) -> tuple[int, ...] | None:
    """Return the columns that hold these parts of a key, in its order; None if one does not stand alone."""
    if parts == {_PARTITION}:
        return None
    places = {part: path[0] for path, part in held if len(path) == 1}
    if not parts <= places.keys():
        return None
    return tuple(places[part] for part in sorted(parts, key=_place))


def _place(part: str) -> int:
    return 0 if part == _KEY else int(part.removeprefix(_COLUMN))
