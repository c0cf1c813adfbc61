"""What a stateful processor gets of us: PySpark's handle and variables, on our store."""

# ruff: noqa: D102, N802, N803 - PySpark's names, which its documentation describes

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import ListState, MapState, StatefulProcessorHandle, ValueState

from sparkrelay.operators.process.variables import (
    ListCells,
    MapCells,
    Timers,
    ValueCells,
    Work,
    cells_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark.sql.types import StructType

    from sparkrelay.operators.process.variables import Group, VariableSpec

__all__ = ["Handle"]


class _Value(ValueState):
    def __init__(self, cells: ValueCells) -> None:
        self._cells = cells

    def exists(self) -> bool:
        return self._cells.get() is not None

    def get(self) -> tuple[Any, ...] | None:
        return self._cells.get()

    def update(self, newValue: tuple[Any, ...]) -> None:
        self._cells.put(newValue)

    def clear(self) -> None:
        self._cells.clear()


class _List(ListState):
    def __init__(self, cells: ListCells) -> None:
        self._cells = cells

    def exists(self) -> bool:
        return self._cells.exists()

    def get(self) -> Iterator[tuple[Any, ...]]:
        return self._cells.get()

    def put(self, newState: list[tuple[Any, ...]]) -> None:
        self._cells.put(newState)

    def appendValue(self, newState: tuple[Any, ...]) -> None:
        self._cells.append([newState])

    def appendList(self, newState: list[tuple[Any, ...]]) -> None:
        self._cells.append(newState)

    def clear(self) -> None:
        self._cells.clear()


class _Map(MapState):
    def __init__(self, cells: MapCells) -> None:
        self._cells = cells

    def exists(self) -> bool:
        return self._cells.exists()

    def getValue(self, key: tuple[Any, ...]) -> tuple[Any, ...] | None:
        return self._cells.get(key)

    def containsKey(self, key: tuple[Any, ...]) -> bool:
        return self._cells.get(key) is not None

    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:
        self._cells.put(key, value)

    def iterator(self) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        return self._cells.items()

    def keys(self) -> Iterator[tuple[Any, ...]]:
        return (key for key, _ in self._cells.items())

    def values(self) -> Iterator[tuple[Any, ...]]:
        return (value for _, value in self._cells.items())

    def removeKey(self, key: tuple[Any, ...]) -> None:
        self._cells.remove(key)

    def clear(self) -> None:
        self._cells.clear()


class Handle(StatefulProcessorHandle):
    """The handle of one task's micro-batch.

    Args:
        work: what it works on.
        variables: those that ``init`` has declared on the driver.
        time_mode: ``none``, ``processingtime`` or ``eventtime``.
    """

    def __init__(self, work: Work, variables: Iterable[VariableSpec], time_mode: str) -> None:
        self._work = work
        self._known: Mapping[str, VariableSpec] = {one.name: one for one in variables}
        self._cells: dict[str, ValueCells | ListCells | MapCells] = {}
        self._time_mode = time_mode
        self.timers = Timers(work)
        #: Timers must be later than this, milliseconds since 1970: of event time, the watermark.
        self.passed_ms: int | None = None
        #: Timers that are earlier are due then; None: when they say.
        self.earliest_ms: int | None = None

    def load(self, groups: Iterable[Group]) -> None:
        """Read at once what groups are likely to ask for."""
        groups = list(groups)
        for cells in self._cells.values():
            cells.load(groups)

    def write(self) -> None:
        """Note what the store is to have."""
        for cells in self._cells.values():
            cells.write()
        self.timers.write()

    # -- PySpark's ------------------------------------------------------------------------------------------------

    def getValueState(self, stateName: str, schema: StructType | str, ttlDurationMs: int | None = None) -> ValueState:
        del schema, ttlDurationMs
        cells = self._declared(stateName, "value")
        assert isinstance(cells, ValueCells)
        return _Value(cells)

    def getListState(self, stateName: str, schema: StructType | str, ttlDurationMs: int | None = None) -> ListState:
        del schema, ttlDurationMs
        cells = self._declared(stateName, "list")
        assert isinstance(cells, ListCells)
        return _List(cells)

    def getMapState(
        self,
        stateName: str,
        userKeySchema: StructType | str,
        valueSchema: StructType | str,
        ttlDurationMs: int | None = None,
    ) -> MapState:
        del userKeySchema, valueSchema, ttlDurationMs
        cells = self._declared(stateName, "map")
        assert isinstance(cells, MapCells)
        return _Map(cells)

    def registerTimer(self, expiryTimestampMs: int) -> None:
        due = self._time("registerTimer", expiryTimestampMs)
        if self.passed_ms is not None and due <= self.passed_ms:
            raise ValueError(
                f"registerTimer({due}): the watermark is at {self.passed_ms} ms, and a timer must be later than that"
            )
        self.timers.register(due if self.earliest_ms is None else max(due, self.earliest_ms))

    def deleteTimer(self, expiryTimestampMs: int) -> None:
        self.timers.delete(self._time("deleteTimer", expiryTimestampMs))

    def listTimers(self) -> Iterator[int]:
        self._time("listTimers", 0)
        return iter(self.timers.times())

    def deleteIfExists(self, stateName: str) -> None:
        self._cells.pop(stateName, None)

    def _declared(self, name: str, kind: str) -> ValueCells | ListCells | MapCells:
        known = self._known.get(name)
        if known is None or known.kind != kind:
            raise RuntimeError(
                f"init() asks for {kind} state {name!r}, and did not when the pipeline was built: it must ask for the "
                "same variables wherever it runs"
            )
        if name not in self._cells:
            if self._work.group is not None:
                raise RuntimeError(f"{kind} state {name!r} is asked for outside of init()")
            self._cells[name] = cells_of(self._work, known)
        return self._cells[name]

    def _time(self, method: str, value: Any) -> int:
        if self._time_mode == "none":
            raise RuntimeError(
                f'{method}() needs a time: transformWithState(timeMode="ProcessingTime"), or "EventTime"'
            )
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 61:
            raise TypeError(f"{method}() takes milliseconds since 1970, not {value!r}")
        return value
