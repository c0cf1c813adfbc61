"""PySpark's state variables on a task's store: a value, a list or a map of the current group."""

# ruff: noqa: N802, N803 - PySpark's names, which its documentation describes

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.streaming.stateful_processor import ListState, MapState, ValueState
from pyspark.sql.types import LongType, StructField, StructType

from sparkrelay.operators.process.keys import element_key, entry_key, variable_key
from sparkrelay.operators.process.rows import RowCodec, Verifier, is_nested, plain
from sparkrelay.operators.process.variables import Cells

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sparkrelay.operators.process.variables import Group, VariableSpec, Work

#: The span of a list: the place of its first element, and that of the next one.
_PLACES: Final = StructType([StructField("first", LongType(), False), StructField("next", LongType(), False)])


class _Variable:
    """What the kinds of variables have in common."""

    def __init__(self, work: Work, spec: VariableSpec, codec: RowCodec) -> None:
        self._work = work
        self._name = spec.name
        self._verified = Verifier(spec.value, f"{spec.kind} state {spec.name!r}")
        self._cells = Cells(work, codec, spec.ttl_ms)
        self._copies = is_nested(spec.value)

    def load(self, groups: Iterable[Group]) -> None:
        """Read the variables of groups ahead."""
        self._cells.load([variable_key(group.part, self._name) for group in groups])

    def write(self) -> None:
        """Add the changes to the work's."""
        self._cells.write()

    @property
    def _key(self) -> bytes:
        return variable_key(self._work.turn.part, self._name)

    def _own(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return a row that its reader may modify."""
        return tuple(map(plain, row)) if self._copies else row


class _Value(_Variable, ValueState):
    def __init__(self, work: Work, spec: VariableSpec) -> None:
        super().__init__(work, spec, RowCodec(spec.value))

    def exists(self) -> bool:
        return self._cells.get(self._key) is not None

    def get(self) -> tuple[Any, ...] | None:
        found = self._cells.get(self._key)
        return None if found is None else self._own(found)

    def update(self, newValue: tuple[Any, ...]) -> None:
        self._cells.put(self._key, self._key, self._verified(newValue))

    def clear(self) -> None:
        self._cells.put(self._key, self._key, None)


class _List(_Variable, ListState):
    """Elements have consecutive keys: appending one writes only that."""

    def __init__(self, work: Work, spec: VariableSpec) -> None:
        super().__init__(work, spec, RowCodec(spec.value))
        # The span expires with the last element.
        self._places = Cells(work, RowCodec(_PLACES), spec.ttl_ms)
        self._expires = spec.ttl_ms is not None

    def load(self, groups: Iterable[Group]) -> None:
        """Read the spans of groups' lists ahead."""
        variables = [variable_key(group.part, self._name) for group in groups]
        self._places.load(variables)
        if self._expires:
            # Appending checks whether the first element has expired.
            spans = ((key, self._places.get(key)) for key in variables)
            self._cells.load([element_key(key, span[0]) for key, span in spans if span is not None])

    def write(self) -> None:
        """Add the changes to the work's."""
        self._cells.write()
        self._places.write()

    def exists(self) -> bool:
        first, end = self._span()
        return end > first

    def get(self) -> Iterator[tuple[Any, ...]]:
        keys = self._keys()
        self._cells.load(keys)
        rows = [row for key in keys if (row := self._cells.get(key)) is not None]
        return map(self._own, rows)

    def put(self, newState: Iterable[tuple[Any, ...]]) -> None:
        rows = [self._verified(value) for value in newState]
        self.clear()
        self._append(rows)

    def appendValue(self, newState: tuple[Any, ...]) -> None:
        self._append([self._verified(newState)])

    def appendList(self, newState: Iterable[tuple[Any, ...]]) -> None:
        self._append([self._verified(value) for value in newState])

    def clear(self) -> None:
        variable = self._key
        for key in self._keys():
            self._cells.put(variable, key, None)
        self._places.put(variable, variable, None)

    def _append(self, rows: list[tuple[Any, ...]]) -> None:
        if not rows:
            return
        variable, (first, place) = self._key, self._span()
        first = self._unexpired(first, place)
        for place, row in enumerate(rows, place):  # noqa: B020 - continues from there
            self._cells.put(variable, element_key(variable, place), row)
        self._places.put(variable, variable, (first, place + 1))

    def _unexpired(self, first: int, end: int) -> int:
        """Return the place of the first element that has not expired; earlier places are never read again."""
        if not self._expires:
            return first
        step = 1
        while first < end:
            keys = [element_key(self._key, place) for place in range(first, min(first + step, end))]
            self._cells.load(keys)
            for key in keys:
                if self._cells.get(key) is not None:
                    return first
                first += 1
            step *= 2
        return first

    def _span(self) -> tuple[int, int]:
        found = self._places.get(self._key)
        return (0, 0) if found is None else (found[0], found[1])

    def _keys(self) -> list[bytes]:
        return [element_key(self._key, place) for place in range(*self._span())]


class _Map(_Variable, MapState):
    """Every entry has its own key: reading one reads only that."""

    def __init__(self, work: Work, spec: VariableSpec) -> None:
        assert spec.key is not None, "a map has keys"
        super().__init__(work, spec, RowCodec(spec.key, spec.value))
        self._verified_key = Verifier(spec.key, f"a key of map state {spec.name!r}")
        self._key_codec = RowCodec(spec.key)
        self._encoded: dict[tuple[Any, ...], bytes] = {}
        self._width = len(spec.key)

    def load(self, groups: Iterable[Group]) -> None:
        """Read nothing ahead: the entries that will be read are unknown."""

    def exists(self) -> bool:
        return self._cells.has_entries(self._key)

    def getValue(self, key: tuple[Any, ...]) -> tuple[Any, ...] | None:
        found = self._cells.get(self._place(self._verified_key(key)))
        return None if found is None else self._own(found[self._width :])

    def containsKey(self, key: tuple[Any, ...]) -> bool:
        return self._cells.get(self._place(self._verified_key(key))) is not None

    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:
        key = self._verified_key(key)
        self._cells.put(self._key, self._place(key), (*key, *self._verified(value)))

    def iterator(self) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        places = self._cells.load_entries(self._key)
        rows = [row for place in places if (row := self._cells.get(place)) is not None]
        own = map(self._own, rows)
        return ((row[: self._width], row[self._width :]) for row in own)

    def keys(self) -> Iterator[tuple[Any, ...]]:
        return (key for key, _ in self.iterator())

    def values(self) -> Iterator[tuple[Any, ...]]:
        return (value for _, value in self.iterator())

    def removeKey(self, key: tuple[Any, ...]) -> None:
        self._cells.put(self._key, self._place(self._verified_key(key)), None)

    def clear(self) -> None:
        for place in self._cells.load_entries(self._key):
            self._cells.put(self._key, place, None)

    def _place(self, key: tuple[Any, ...]) -> bytes:
        # Other types have equal values that are encoded differently: True and 1, 0.0 and -0.0.
        known = all(type(value) is str or type(value) is int for value in key)
        encoded = self._encoded.get(key) if known else None
        if encoded is None:
            (encoded,) = self._key_codec.write([key], [0])
            if known:
                self._encoded[key] = encoded
        return entry_key(self._key, encoded)


State = _Value | _List | _Map


def state_of(work: Work, spec: VariableSpec) -> State:
    """Return a variable's state."""
    kinds: dict[str, type[State]] = {"value": _Value, "list": _List, "map": _Map}
    return kinds[spec.kind](work, spec)
