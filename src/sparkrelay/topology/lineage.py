"""Which columns still decide a row's partition, followed through row-wise steps.

Grouping needs all rows of a group in one task. They are if the grouping columns include columns of which the message's
partition is a function: the decoded key, Kafka's own ``key``, or Kafka's ``partition``. A step may rename such a
column, copy it, overwrite it or drop it. What cannot be followed counts as lost: then a repartition topic is written,
which is slower and always right. Names are followed exactly, but lost without regard to case, because Spark's
``CARRIER`` overwrites ``carrier`` unless ``spark.sql.caseSensitive`` is set.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.topology.columns import Path, column_path, expression_path, is_star, output_name, parse_path

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkrelay.records.formats import Format
    from sparkrelay.topology.structure import Step

_KEY: Final = "key"
_PARTITION: Final = "partition"
#: Behind it stands a number: which column of the key.
_COLUMN: Final = "column "


@dataclass(frozen=True, slots=True)
class Located:
    """A grouping that finds its rows in their task already.

    Attributes:
        not_null: columns whose null stands for a message without a key, which may lie in any partition.
        columns: names of the columns that decide the partition, in the order of the key; None where one is a field, or
            Kafka's ``partition``.
    """

    not_null: tuple[Path, ...]
    columns: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Lineage:
    """The columns at one point that hold an unchanged part of what decides the partition.

    Attributes:
        held: column and the part it holds.
        sufficient: sets of parts, each of which decides the partition alone.
        named: the names that the key's columns had where it was read.
        key_type: of what a key of one column is, as Python has it; None where that is not known.
    """

    held: frozenset[tuple[Path, str]] = frozenset()
    sufficient: tuple[frozenset[str], ...] = ()
    named: tuple[str, ...] = ()
    key_type: type[str | int | bytes] | None = None

    @classmethod
    def of_source(cls, key: Format | None, value: Format | None) -> Lineage:
        """Return the lineage of a stream as it is read."""
        held: set[tuple[Path, str]] = set()
        prefix: Path = ("kafka",)
        if key is None and value is None:
            prefix = ()
        elif key is not None and key.table_key_refusal is None:
            held.add(((*key.known_columns("key"),), _KEY))
        named = tuple(path[0] for path, _ in held)
        held |= {((*prefix, "key"), _KEY), ((*prefix, "partition"), _PARTITION)}
        type_ = bytes if key is None else key.key_type
        return cls(frozenset(held), (frozenset({_KEY}), frozenset({_PARTITION})), named or ("key",), type_)

    @classmethod
    def of_repartition(cls, columns: Iterable[str]) -> Lineage:
        """Return the lineage behind a repartition topic whose key is made of ``columns``."""
        parts = {((name,), f"{_COLUMN}{index}") for index, name in enumerate(columns)}
        if len(parts) == 1:
            parts = {(path, _KEY) for path, _ in parts}
        return cls(frozenset(parts), (frozenset(part for _, part in parts),), tuple(columns))

    def locate(self, keys: Iterable[object]) -> Located | None:
        """Return how grouping by ``keys`` finds its rows, or None if they must be repartitioned first."""
        paths = {column_path(key) for key in keys}
        grouped = [(path, part) for path, part in sorted(self.held) if path in paths]
        for parts in self.sufficient:
            if parts <= {part for _, part in grouped}:
                # A key of several columns is never null as a whole, and a partition never is.
                not_null = [path for path, part in grouped if part == _KEY] if parts == {_KEY} else []
                return Located(tuple(not_null[:1]), _key_columns(grouped, parts))
        return None

    def key(self) -> tuple[str, ...] | None:
        """Return the names of the columns that hold the message key, in its order; None if they are not all there."""
        # Of several copies of one the name that it was read under is meant, and else the first.
        held = sorted(self.held, key=lambda one: (one[0][0] not in self.named, one), reverse=True)
        for parts in self.sufficient:
            if parts != {_PARTITION} and (found := _key_columns(held, parts)) is not None:
                return found
        return None

    def copies(self) -> tuple[str, ...]:
        """Return the names of all columns that hold a part of the message key: of a copied one there are several."""
        return tuple(sorted(path[0] for path, part in self.held if len(path) == 1 and part != _PARTITION))

    def after(self, step: Step) -> Lineage:
        """Return the lineage behind ``step``."""
        match step.kind:
            case "where" | "filter" | "dropna" | "withWatermark" | "join":
                # A join with a DataFrame adds columns of other names.
                return self
            case "withColumn":
                return self._with_columns({step.args[0]: step.args[1]})
            case "withColumns":
                return self._with_columns(step.args[0])
            case "withColumnRenamed":
                return self._renamed(*step.args)
            case "drop":
                return self._without(step.args)
            case "fillna":
                return self._filled(step.args[0], step.kwargs.get("subset"))
            case "select":
                return self._selected(step.args)
            case "selectExpr":
                return self._selected_by_text(step.args)
            case _:
                return replace(self, held=frozenset())

    def _filled(self, value: Any, subset: tuple[str, ...] | None) -> Lineage:
        """Return the lineage behind ``fillna``, which changes columns that may be null and are of the value's type."""
        named = tuple(value) if isinstance(value, dict) else subset
        if named is not None:
            return self._without(named)
        kind = type(value) if isinstance(value, bool | str) else int
        # Kafka's own columns are left alone; of others the type is not known here.
        return self if self.key_type not in {None, kind} else replace(self, held=frozenset())

    def _with_columns(self, columns: dict[str, Any]) -> Lineage:
        made = {(name,): column_path(column) for name, column in columns.items()}
        replaced = {name.lower() for name in columns}
        kept = {(path, part) for path, part in self.held if path[0].lower() not in replaced}
        copied = {copy for new, old in made.items() if old is not None for copy in self._moved(old, new)}
        return replace(self, held=frozenset(kept | copied))

    def _renamed(self, old: str, new: str) -> Lineage:
        touched = {old.lower(), new.lower()}
        kept = {(path, part) for path, part in self.held if path[0].lower() not in touched}
        return replace(self, held=frozenset(kept | set(self._moved((old,), (new,)))))

    def _without(self, columns: tuple[Any, ...]) -> Lineage:
        dropped: set[str] = set()
        for column in columns:
            path = column_path(column)
            if path is None:
                return replace(self, held=frozenset())
            # drop("a.b") means a column of that whole name; drop(F.col("a.b")) a field. Neither may stay trusted.
            dropped |= {path[0].lower(), str(column).lower() if isinstance(column, str) else path[0].lower()}
        return replace(self, held=frozenset((p, part) for p, part in self.held if p[0].lower() not in dropped))

    def _selected(self, columns: tuple[Any, ...]) -> Lineage:
        held: set[tuple[Path, str]] = set()
        for column in columns:
            if is_star(column):
                held |= self.held
            elif isinstance(column, str) and column.endswith(".*"):
                inside = parse_path(column[:-2])
                held |= set() if inside is None else set(self._moved(inside, ()))
            else:
                path, name = column_path(column), output_name(column)
                if path is not None and name is not None:
                    held |= set(self._moved(path, (name,)))
        return replace(self, held=frozenset(held))

    def _selected_by_text(self, expressions: tuple[str, ...]) -> Lineage:
        held: set[tuple[Path, str]] = set()
        for text in expressions:
            if is_star(text):
                held |= self.held
                continue
            path, name = expression_path(text)
            if path is not None and name is not None:
                held |= set(self._moved(path, (name,)))
        return replace(self, held=frozenset(held))

    def _moved(self, old: Path, new: Path) -> Iterable[tuple[Path, str]]:
        """Yield what is held in or under ``old``, under its new place."""
        for path, part in self.held:
            if path[: len(old)] == old and (new or len(path) > len(old)):
                yield (*new, *path[len(old) :]), part


def _key_columns(held: Iterable[tuple[Path, str]], parts: frozenset[str]) -> tuple[str, ...] | None:
    """Return the columns that hold these parts of a key, in its order; None if one does not stand alone."""
    if parts == {_PARTITION}:
        return None
    places = {part: path[0] for path, part in held if len(path) == 1}
    if not parts <= places.keys():
        return None
    return tuple(places[part] for part in sorted(parts, key=_place))


def _place(part: str) -> int:
    return 0 if part == _KEY else int(part.removeprefix(_COLUMN))
