"""PySpark's handle of a stateful processor, on a task's store."""

# ruff: noqa: D102, N802, N803 - PySpark's names, which its documentation describes

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import ListState, MapState, StatefulProcessorHandle, ValueState

from sparkrelay.operators.process.states import state_of
from sparkrelay.operators.process.variables import Timers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark.sql.types import StructType

    from sparkrelay.operators.process.states import State
    from sparkrelay.operators.process.variables import Group, VariableSpec, Work


class VariablesHandle(StatefulProcessorHandle):
    """A handle that makes every kind of variable the same way."""

    def _variable(self, kind: str, name: str, key: Any, value: Any, ttl_ms: int | None) -> Any:
        """Return a variable of this kind, with schemas as a processor gives them; ``key`` is None without a map."""
        raise NotImplementedError

    def getValueState(self, stateName: str, schema: StructType | str, ttlDurationMs: int | None = None) -> ValueState:
        state: ValueState = self._variable("value", stateName, None, schema, ttlDurationMs)
        return state

    def getListState(self, stateName: str, schema: StructType | str, ttlDurationMs: int | None = None) -> ListState:
        state: ListState = self._variable("list", stateName, None, schema, ttlDurationMs)
        return state

    def getMapState(
        self,
        stateName: str,
        userKeySchema: StructType | str,
        valueSchema: StructType | str,
        ttlDurationMs: int | None = None,
    ) -> MapState:
        state: MapState = self._variable("map", stateName, userKeySchema, valueSchema, ttlDurationMs)
        return state


class Handle(VariablesHandle):
    """The handle of one task's micro-batch.

    Args:
        work: the micro-batch's state.
        variables: the variables that ``init`` declared on the driver.
        time_mode: ``none``, ``processingtime`` or ``eventtime``.
    """

    def __init__(self, work: Work, variables: Iterable[VariableSpec], time_mode: str) -> None:
        self._work = work
        self._known: Mapping[str, VariableSpec] = {one.name: one for one in variables}
        self._states: dict[str, State] = {}
        self._time_mode = time_mode
        self.timers = Timers(work)
        #: The watermark, in ms since 1970; timers must be later. None without event time.
        self.passed_ms: int | None = None
        #: Earlier timers are postponed to this time, if set.
        self.earliest_ms: int | None = None

    def load(self, groups: Iterable[Group]) -> None:
        """Read the state of groups ahead, in one go."""
        groups = list(groups)
        for state in self._states.values():
            state.load(groups)

    def write(self) -> None:
        """Add the changes to the work's."""
        for state in self._states.values():
            state.write()
        self.timers.write()

    def _variable(self, kind: str, name: str, key: Any, value: Any, ttl_ms: int | None) -> State:
        """Return a variable that ``init`` asked for on the driver, too."""
        del key, value, ttl_ms
        known = self._known.get(name)
        if known is None or known.kind != kind:
            raise RuntimeError(
                f"init() asks for {kind} state {name!r}, but did not when the pipeline was built: it must ask for the "
                "same variables everywhere"
            )
        if name not in self._states:
            if self._work.group is not None:
                raise RuntimeError(f"{kind} state {name!r} is requested outside of init()")
            self._states[name] = state_of(self._work, known)
        return self._states[name]

    # -- PySpark's ------------------------------------------------------------------------------------------------

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
        self._states.pop(stateName, None)

    def _time(self, method: str, value: Any) -> int:
        if self._time_mode == "none":
            raise RuntimeError(
                f'{method}() needs a time: transformWithState(timeMode="ProcessingTime"), or "EventTime"'
            )
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 61:
            raise TypeError(f"{method}() takes milliseconds since 1970, not {value!r}")
        return value
