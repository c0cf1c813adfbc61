"""The variables and timers of a stateful processor, within the transaction of one task's micro-batch.

What is read stays here, and what is written goes to the store when all groups have had their turn. Everything goes by
the *group* whose turn it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.types import LongType, StructField, StructType

from sparkrelay.operators.process.keys import (
    TIMERS,
    behind_front,
    element_key,
    entries,
    entry_key,
    expiry_key,
    part,
    place_of,
    read_due,
    timer_key,
    variable_key,
    variable_of,
)
from sparkrelay.operators.process.rows import RowCodec, Verifier, is_nested, plain
from sparkrelay.state.watermarks import NEVER, over

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sparkrelay.state.view import StoreView

__all__ = [
    "Group",
    "ListCells",
    "MapCells",
    "Timers",
    "ValueCells",
    "VariableSpec",
    "Work",
    "cells_of",
    "remove_expired",
]

_LATEST_EXPIRY: Final = 1 << 60
#: So many entries of a map are read to see whether it has any.
_FIRST_ENTRIES: Final = 16
#: Columns of what is known of a list as a whole: where its first element stands, and where the next one is to.
_PLACES: Final = StructType([StructField("first", LongType(), False), StructField("next", LongType(), False)])


@dataclass(frozen=True, slots=True)
class VariableSpec:
    """A variable of a stateful processor.

    Attributes:
        name: the user's name of it.
        kind: ``value``, ``list`` or ``map``.
        key: of a map: the columns of its keys; else None.
        value: the columns of its values.
        ttl_ms: for how long what is put into it lasts, in milliseconds; None: for ever.
    """

    name: str
    kind: str
    key: StructType | None
    value: StructType
    ttl_ms: int | None


@dataclass(frozen=True, slots=True)
class Group:
    """A group whose turn it can be.

    Attributes:
        key: its key, encoded.
        part: the same as it stands in the store's keys.
    """

    key: bytes
    part: bytes

    @classmethod
    def of(cls, key: bytes) -> Group:
        """Return the group of that key."""
        return cls(key, part(key))


@dataclass(slots=True)
class Work:
    """What one task's micro-batch works on.

    Attributes:
        view: the store before it.
        now_ms: by which variables expire, in milliseconds since 1970.
        group: whose turn it is; None outside of any.
        changed: key of the store -> its new value, or None.
    """

    view: StoreView
    now_ms: int
    group: Group | None = None
    changed: dict[bytes, bytes | None] = field(default_factory=dict)

    @property
    def turn(self) -> Group:
        """The group whose turn it is.

        Raises:
            RuntimeError: there is none.
        """
        if self.group is None:
            raise RuntimeError("variables and timers are of a group: in init() and close() there is none")
        return self.group

    def get(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return what the store has of some keys."""
        wanted = sorted(set(keys))
        values = self.view.get(pa.array(wanted, pa.binary())).to_pylist()
        return {key: value for key, value in zip(wanted, values, strict=True) if value is not None}


class _Cells:
    """Rows of one kind, each under a key of the store."""

    def __init__(self, work: Work, codec: RowCodec, ttl_ms: int | None) -> None:
        self._work = work
        self._codec = codec
        self._ttl_ms = ttl_ms
        self._rows: dict[bytes, tuple[Any, ...] | None] = {}
        #: Key -> when what the store has of it expires; of what has been looked for.
        self._stored: dict[bytes, int | None] = {}
        #: Group's variable -> keys that were put: a scan of one looks at its own alone.
        self._dirty: dict[bytes, dict[bytes, None]] = {}
        #: Group's map that was read whole -> the keys that the store has of it.
        self._entries: dict[bytes, list[bytes]] = {}

    def load(self, keys: Iterable[bytes]) -> None:
        """Read what is not here yet."""
        missing = [key for key in keys if key not in self._stored]
        if not missing:
            return
        self._take(self._work.get(missing))
        for key in missing:
            self._stored.setdefault(key, None)
            self._rows.setdefault(key, None)

    def load_entries(self, variable: bytes) -> list[bytes]:
        """Read all entries of a group's map; return the keys that have a row by now, in the order of bytes."""
        if variable not in self._entries:
            first, stop = entries(variable)
            _, keys, values = self._work.view.ranges([first], [stop])
            self._entries[variable] = self._read(keys, values)
        every = {*self._entries[variable], *self._dirty.get(variable, ())}
        return sorted(key for key in every if self._rows.get(key) is not None)

    def has_entries(self, variable: bytes) -> bool:
        """Return whether a group's map has an entry by now; most have one of the first that the store has."""
        put = self._dirty.get(variable, {})
        if variable not in self._entries and not self._any(put):
            some = self._work.view.between(*entries(variable), _FIRST_ENTRIES)
            if self._any(self._read(some.column("key"), some.column("value"))):
                return True
            self.load_entries(variable)
        return self._any(put) or self._any(self._entries[variable])

    def _any(self, keys: Iterable[bytes]) -> bool:
        return any(self._rows[key] is not None for key in keys)

    def _read(self, keys: pa.Array, values: pa.Array) -> list[bytes]:
        """Take what the store has of entries; return their keys."""
        found = dict(zip(keys.to_pylist(), values.to_pylist(), strict=True))
        self._take({key: value for key, value in found.items() if key not in self._stored})
        return list(found)

    def _take(self, found: dict[bytes, bytes]) -> None:
        rows, expires = self._codec.read(list(found.values()))
        for key, row, ms in zip(found, rows, expires, strict=True):
            self._stored[key] = ms
            # What was put there meanwhile is newer.
            self._rows.setdefault(key, row if ms > self._work.now_ms else None)

    def get(self, key: bytes) -> tuple[Any, ...] | None:
        """Return a row; None if there is none, or it has expired."""
        if key not in self._rows:
            self.load([key])
        return self._rows[key]

    def put(self, variable: bytes, key: bytes, row: tuple[Any, ...] | None) -> None:
        """Put a row of a group's variable under a key; None removes it."""
        self._rows[key] = row
        self._dirty.setdefault(variable, {})[key] = None

    def write(self) -> None:
        """Note what the store is to have."""
        changed, dirty = self._work.changed, [key for keys in self._dirty.values() for key in keys]
        expires = NEVER
        if self._ttl_ms is not None:
            expires = min(self._work.now_ms + self._ttl_ms, _LATEST_EXPIRY)
            self.load(dirty)
            for key in dirty:
                if (before := self._stored[key]) is not None:
                    changed[expiry_key(before, key)] = None
        there = [key for key in dirty if self._rows[key] is not None]
        rows = [row for key in there if (row := self._rows[key]) is not None]
        changed.update(dict.fromkeys(dirty))
        changed.update(zip(there, self._codec.write(rows, [expires] * len(rows)), strict=True))
        if self._ttl_ms is not None:
            changed.update((expiry_key(expires, key), b"") for key in there)


class ValueCells:
    """A variable of one value a group."""

    def __init__(self, work: Work, spec: VariableSpec) -> None:
        self._work = work
        self._name = spec.name
        self._verified = Verifier(spec.value, f"value state {spec.name!r}")
        self._cells = _Cells(work, RowCodec(spec.value), spec.ttl_ms)
        self._copies = is_nested(spec.value)

    def load(self, groups: Iterable[Group]) -> None:
        """Read the values of groups that will be asked for."""
        self._cells.load([variable_key(group.part, self._name) for group in groups])

    def get(self) -> tuple[Any, ...] | None:
        """Return the group's value, or None."""
        found = self._cells.get(self._key)
        return None if found is None else _own(found, copies=self._copies)

    def put(self, value: Any) -> None:
        """Replace it."""
        self._cells.put(self._key, self._key, self._verified(value))

    def clear(self) -> None:
        """Remove it."""
        self._cells.put(self._key, self._key, None)

    def write(self) -> None:
        """Note what the store is to have."""
        self._cells.write()

    @property
    def _key(self) -> bytes:
        return variable_key(self._work.turn.part, self._name)


class ListCells:
    """A variable of a list a group: its elements stand one behind the other, so that adding one writes only that."""

    def __init__(self, work: Work, spec: VariableSpec) -> None:
        self._work = work
        self._name = spec.name
        self._verified = Verifier(spec.value, f"list state {spec.name!r}")
        # Where elements stand lasts as long as the last of them.
        self._places = _Cells(work, RowCodec(_PLACES), spec.ttl_ms)
        self._elements = _Cells(work, RowCodec(spec.value), spec.ttl_ms)
        self._expires = spec.ttl_ms is not None
        self._copies = is_nested(spec.value)

    def load(self, groups: Iterable[Group]) -> None:
        """Read how long the lists of groups are that will be asked for."""
        variables = [variable_key(group.part, self._name) for group in groups]
        self._places.load(variables)
        if self._expires:
            # Whoever appends looks whether the first one is still there.
            spans = ((key, self._places.get(key)) for key in variables)
            self._elements.load([element_key(key, span[0]) for key, span in spans if span is not None])

    def exists(self) -> bool:
        """Return whether the group has any element."""
        first, behind = self._span()
        return behind > first

    def get(self) -> Iterator[tuple[Any, ...]]:
        """Return the group's elements, those that have not expired."""
        keys = self._keys()
        self._elements.load(keys)
        rows = [row for key in keys if (row := self._elements.get(key)) is not None]
        return (_own(row, copies=self._copies) for row in rows)

    def put(self, values: Iterable[Any]) -> None:
        """Replace them."""
        rows = [self._verified(value) for value in values]
        self.clear()
        self._append(rows)

    def append(self, values: Iterable[Any]) -> None:
        """Add some behind them."""
        self._append([self._verified(value) for value in values])

    def clear(self) -> None:
        """Remove them."""
        variable = self._key
        for key in self._keys():
            self._elements.put(variable, key, None)
        self._places.put(variable, variable, None)

    def write(self) -> None:
        """Note what the store is to have."""
        self._elements.write()
        self._places.write()

    def _append(self, rows: list[tuple[Any, ...]]) -> None:
        if not rows:
            return
        variable, (first, place) = self._key, self._span()
        first = self._unexpired(first, place)
        for place, row in enumerate(rows, place):  # noqa: B020 - it goes on from there
            self._elements.put(variable, element_key(variable, place), row)
        self._places.put(variable, variable, (first, place + 1))

    def _unexpired(self, first: int, behind: int) -> int:
        """Return where the first element stands that has not expired: no place in front of it is asked for again."""
        if not self._expires:
            return first
        step = 1
        while first < behind:
            keys = [element_key(self._key, place) for place in range(first, min(first + step, behind))]
            self._elements.load(keys)
            for key in keys:
                if self._elements.get(key) is not None:
                    return first
                first += 1
            step *= 2
        return first

    def _span(self) -> tuple[int, int]:
        found = self._places.get(self._key)
        return (0, 0) if found is None else (found[0], found[1])

    def _keys(self) -> list[bytes]:
        return [element_key(self._key, place) for place in range(*self._span())]

    @property
    def _key(self) -> bytes:
        return variable_key(self._work.turn.part, self._name)


class MapCells:
    """A variable of a map a group: each entry stands for itself, so that reading one reads only that."""

    def __init__(self, work: Work, spec: VariableSpec) -> None:
        assert spec.key is not None, "a map has keys"
        self._work = work
        self._name = spec.name
        self._verified_key = Verifier(spec.key, f"a key of map state {spec.name!r}")
        self._verified = Verifier(spec.value, f"map state {spec.name!r}")
        self._key_codec = RowCodec(spec.key)
        self._encoded: dict[tuple[Any, ...], bytes] = {}
        self._width = len(spec.key)
        self._cells = _Cells(work, RowCodec(spec.key, spec.value), spec.ttl_ms)
        self._copies = is_nested(spec.value)

    def load(self, groups: Iterable[Group]) -> None:
        """Read nothing ahead: which entries will be asked for nobody knows."""

    def get(self, key: Any) -> tuple[Any, ...] | None:
        """Return the value of a key, or None."""
        found = self._cells.get(self._place(self._verified_key(key)))
        return None if found is None else _own(found[self._width :], copies=self._copies)

    def put(self, key: Any, value: Any) -> None:
        """Put a value under a key."""
        key = self._verified_key(key)
        self._cells.put(self._variable, self._place(key), (*key, *self._verified(value)))

    def remove(self, key: Any) -> None:
        """Remove a key."""
        self._cells.put(self._variable, self._place(self._verified_key(key)), None)

    def items(self) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        """Return the group's keys with their values, in no order that means anything."""
        rows = [row for place in self._places() if (row := self._cells.get(place)) is not None]
        own = (_own(row, copies=self._copies) for row in rows)
        return ((row[: self._width], row[self._width :]) for row in own)

    def exists(self) -> bool:
        """Return whether there is any."""
        return self._cells.has_entries(self._variable)

    def clear(self) -> None:
        """Remove them all."""
        for place in self._places():
            self._cells.put(self._variable, place, None)

    def write(self) -> None:
        """Note what the store is to have."""
        self._cells.write()

    def _place(self, key: tuple[Any, ...]) -> bytes:
        # Others may be equal and yet not be the same text: True and 1, 0.0 and -0.0.
        known = all(type(value) is str or type(value) is int for value in key)
        encoded = self._encoded.get(key) if known else None
        if encoded is None:
            (encoded,) = self._key_codec.write([key], [0])
            if known:
                self._encoded[key] = encoded
        return entry_key(self._variable, encoded)

    def _places(self) -> list[bytes]:
        return self._cells.load_entries(self._variable)

    @property
    def _variable(self) -> bytes:
        return variable_key(self._work.turn.part, self._name)


def cells_of(work: Work, spec: VariableSpec) -> ValueCells | ListCells | MapCells:
    """Return what keeps a variable."""
    kinds: dict[str, type[ValueCells | ListCells | MapCells]] = {
        "value": ValueCells,
        "list": ListCells,
        "map": MapCells,
    }
    return kinds[spec.kind](work, spec)


class Timers:
    """The timers of all groups: each stands under when it is due, and among those of its group.

    Whoever registers one, or deletes it, reads none: a group may have millions.
    """

    def __init__(self, work: Work) -> None:
        self._work = work
        #: Group -> time -> whether there is to be a timer.
        self._changed: dict[Group, dict[int, bool]] = {}
        self._stored: dict[Group, list[int]] = {}

    def register(self, ms: int) -> None:
        """Have the group get a timer, in milliseconds since 1970, if it has not got it."""
        self._changed.setdefault(self._work.turn, {})[ms] = True

    def delete(self, ms: int) -> None:
        """Have the group lose a timer, if it has it."""
        self._changed.setdefault(self._work.turn, {})[ms] = False

    def is_deleted(self, ms: int) -> bool:
        """Return whether the group lost that timer in this micro-batch."""
        return not self._changed.get(self._work.turn, {}).get(ms, True)

    def times(self) -> list[int]:
        """Return the times of the group's timers, the earliest first."""
        group = self._work.turn
        if group not in self._stored:
            first, stop = entries(variable_key(group.part, TIMERS))
            _, keys, _ = self._work.view.ranges([first], [stop])
            self._stored[group] = [place_of(key) for key in keys.to_pylist()]
        changed = self._changed.get(group)
        if not changed:
            return self._stored[group]
        kept = [ms for ms in self._stored[group] if ms not in changed]
        return sorted([*kept, *(ms for ms, there in changed.items() if there)])

    def due(self, by_ms: int) -> list[tuple[int, Group]]:
        """Return the timers that are due by then, the earliest first."""
        stored = self._work.view.between(b"", over(by_ms))
        timers = {}
        for key, value in zip(stored.column("key").to_pylist(), stored.column("value").to_pylist(), strict=True):
            ms, is_timer = read_due(key)
            if is_timer and ms <= by_ms:
                timers[ms, value] = Group(value, behind_front(key))
        for group, changed in self._changed.items():
            for ms, there in changed.items():
                timers.pop((ms, group.key), None)
                if there and ms <= by_ms:
                    timers[ms, group.key] = group
        return [(ms, group) for (ms, _), group in sorted(timers.items())]

    def write(self) -> None:
        """Note what the store is to have."""
        for group, changed in self._changed.items():
            variable = variable_key(group.part, TIMERS)
            for ms, there in changed.items():
                self._work.changed[timer_key(ms, group.part)] = group.key if there else None
                self._work.changed[element_key(variable, ms)] = b"" if there else None


def remove_expired(work: Work) -> None:
    """Note that what has expired is to go; it is read as absent as it is. Comes before variables are written."""
    stored = work.view.between(b"", over(work.now_ms))
    for key in stored.column("key").to_pylist():
        if not read_due(key)[1]:
            work.changed[key] = None
            work.changed[variable_of(key)] = None


def _own(row: tuple[Any, ...], *, copies: bool) -> tuple[Any, ...]:
    """Return a row that its reader may change."""
    return tuple(map(plain, row)) if copies else row
