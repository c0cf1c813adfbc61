"""Storage of a stateful processor's variables and timers during one task's micro-batch.

Reads are cached, and changes are written to the store after all groups were processed. Every access belongs to the
*current group*.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from sparkrelay.operators.process.keys import (
    TIMERS,
    behind_front,
    element_key,
    entries,
    expiry_key,
    is_expiry,
    part,
    place_of,
    read_due,
    timer_key,
    variable_key,
    variable_of,
)
from sparkrelay.state.window_keys import NEVER, over

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql.types import StructType

    from sparkrelay.operators.process.rows import RowCodec
    from sparkrelay.state.view import StoreView

_LATEST_EXPIRY: Final = 1 << 60
#: Number of a map's entries that are read to see whether it has any.
_FIRST_ENTRIES: Final = 16


@dataclass(frozen=True, slots=True)
class VariableSpec:
    """A variable of a stateful processor.

    Attributes:
        name: the user's name.
        kind: ``value``, ``list`` or ``map``.
        key: the columns of a map's keys; else None.
        value: the columns of its values.
        ttl_ms: how long values last, in ms; None: forever.
    """

    name: str
    kind: str
    key: StructType | None
    value: StructType
    ttl_ms: int | None


@dataclass(frozen=True, slots=True)
class Group:
    """A group: its encoded key, and the same as a part of the store's keys (``keys.part``)."""

    key: bytes
    part: bytes

    @classmethod
    def of(cls, key: bytes) -> Group:
        """Return the group of an encoded key."""
        return cls(key, part(key))


@dataclass(slots=True)
class Work:
    """State of one task's micro-batch.

    Attributes:
        view: the store before it.
        now_ms: the time by which variables expire, in ms since 1970.
        group: the current group; None outside of any.
        changed: key of the store -> new value, or None.
    """

    view: StoreView
    now_ms: int
    group: Group | None = None
    changed: dict[bytes, bytes | None] = field(default_factory=dict)

    @property
    def turn(self) -> Group:
        """The current group.

        Raises:
            RuntimeError: there is none.
        """
        if self.group is None:
            raise RuntimeError("variables and timers belong to a group, and init() and close() have none")
        return self.group

    def get(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return the stored values of keys."""
        wanted = sorted(set(keys))
        values = self.view.get(pa.array(wanted, pa.binary())).to_pylist()
        return {key: value for key, value in zip(wanted, values, strict=True) if value is not None}


class Cells:
    """Cached rows of one variable, by key of the store."""

    def __init__(self, work: Work, codec: RowCodec, ttl_ms: int | None) -> None:
        self._work = work
        self._codec = codec
        self._ttl_ms = ttl_ms
        self._rows: dict[bytes, tuple[Any, ...] | None] = {}
        #: Key -> expiry of the stored row, or None; of all keys that were read.
        self._stored: dict[bytes, int | None] = {}
        #: Group's variable -> changed keys.
        self._dirty: dict[bytes, dict[bytes, None]] = {}
        #: Group's map that was read whole -> its stored keys.
        self._entries: dict[bytes, list[bytes]] = {}

    def load(self, keys: Iterable[bytes]) -> None:
        """Read missing rows."""
        missing = [key for key in keys if key not in self._stored]
        if not missing:
            return
        self._take(self._work.get(missing))
        for key in missing:
            self._stored.setdefault(key, None)
            self._rows.setdefault(key, None)

    def load_entries(self, variable: bytes) -> list[bytes]:
        """Read all entries of a group's map; return the keys that have a row now, sorted."""
        if variable not in self._entries:
            first, stop = entries(variable)
            _, keys, values = self._work.view.ranges([first], [stop])
            self._entries[variable] = self._read(keys, values)
        every = {*self._entries[variable], *self._dirty.get(variable, ())}
        return sorted(key for key in every if self._rows.get(key) is not None)

    def has_entries(self, variable: bytes) -> bool:
        """Return whether a group's map has an entry now; usually the first stored ones decide."""
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
        """Cache stored entries; return their keys."""
        found = dict(zip(keys.to_pylist(), values.to_pylist(), strict=True))
        self._take({key: value for key, value in found.items() if key not in self._stored})
        return list(found)

    def _take(self, found: dict[bytes, bytes]) -> None:
        rows, expires = self._codec.read(list(found.values()))
        for key, row, ms in zip(found, rows, expires, strict=True):
            self._stored[key] = ms
            # A row that was put in this micro-batch is newer.
            self._rows.setdefault(key, row if ms > self._work.now_ms else None)

    def get(self, key: bytes) -> tuple[Any, ...] | None:
        """Return a row; None if it is missing or expired."""
        if key not in self._rows:
            self.load([key])
        return self._rows[key]

    def put(self, variable: bytes, key: bytes, row: tuple[Any, ...] | None) -> None:
        """Set a row of a group's variable; None removes it."""
        self._rows[key] = row
        self._dirty.setdefault(variable, {})[key] = None

    def write(self) -> None:
        """Add the changes to the work's."""
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


class Timers:
    """The timers of all groups. Each is stored twice: by time, and by group.

    Registering and deleting read nothing: a group may have millions of timers.
    """

    def __init__(self, work: Work) -> None:
        self._work = work
        #: Group -> time -> whether the timer exists.
        self._changed: dict[Group, dict[int, bool]] = {}
        self._stored: dict[Group, list[int]] = {}

    def register(self, ms: int) -> None:
        """Add a timer of the current group, in ms since 1970."""
        self._changed.setdefault(self._work.turn, {})[ms] = True

    def delete(self, ms: int) -> None:
        """Remove a timer of the current group."""
        self._changed.setdefault(self._work.turn, {})[ms] = False

    def is_deleted(self, ms: int) -> bool:
        """Return whether the current group's timer was removed in this micro-batch."""
        return not self._changed.get(self._work.turn, {}).get(ms, True)

    def times(self) -> list[int]:
        """Return the sorted times of the current group's timers."""
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
        """Return the timers that are due, sorted by time."""
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
        """Add the changes to the work's."""
        for group, changed in self._changed.items():
            variable = variable_key(group.part, TIMERS)
            for ms, there in changed.items():
                self._work.changed[timer_key(ms, group.part)] = group.key if there else None
                self._work.changed[element_key(variable, ms)] = b"" if there else None


def remove_expired(work: Work) -> None:
    """Remove expired rows, which already read as absent. Call it before variables are written."""
    stored = work.view.between(b"", over(work.now_ms))
    for key in stored.column("key").to_pylist():
        if is_expiry(key):
            work.changed[key] = None
            work.changed[variable_of(key)] = None
