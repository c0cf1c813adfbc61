"""Stateful processors, as the compiler plans them."""

# ruff: noqa: N802, N803 - PySpark's names

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import PySparkException
from pyspark.sql.streaming.stateful_processor import ListState, MapState, ValueState
from pyspark.sql.types import StructType, VariantType, _has_type, _parse_datatype_string

from sparkrelay import hidden_columns
from sparkrelay.errors import TopologyException
from sparkrelay.operators.emitting.plan import ALL, EmittingPlan
from sparkrelay.operators.process.handle import VariablesHandle
from sparkrelay.operators.process.keys import LONGEST_NAME
from sparkrelay.operators.process.run import CallProcessor
from sparkrelay.operators.process.step import KEY, Transformation
from sparkrelay.operators.process.variables import VariableSpec
from sparkrelay.runtime.compile.carried_columns import EMITTED
from sparkrelay.runtime.compile.contents import brief, spread
from sparkrelay.runtime.compile.timed_sources import timed_fields
from sparkrelay.topology.schemas import arrow_schema, check_packable, hidden_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sparkrelay.topology import Leg

#: PySpark's variables, by kind.
_KINDS: Final[Mapping[str, Any]] = {"value": ValueState, "list": ListState, "map": MapState}


class Plan(EmittingPlan[Transformation]):
    """See :class:`EmittingPlan`."""

    def needs(self, read: frozenset[str]) -> frozenset[str]:
        """Return all: the processor is given whole rows."""
        return read | ALL

    def runner(
        self, leg: Leg, taken: StructType, read: frozenset[str], fields: Mapping[str, Any]
    ) -> tuple[CallProcessor, StructType]:
        """Return the leg's runner, and its output columns.

        Raises:
            TopologyException: a variable cannot be stored.
        """
        step = self.step
        keys = StructType([one for one in taken if one.name.startswith(KEY)])
        variables = _declared(step, f"{step.call_site}: {step.text}")
        output = StructType([*(one for one in step.made if one.name in read), *hidden_fields(EMITTED)])
        made = CallProcessor(
            **fields,
            **timed_fields(leg, step, self.around),
            contents=_contents(step, leg, keys, variables, spread(leg, self.around.legs)),
            output=arrow_schema(output),
            keys=arrow_schema(keys),
            key=keys,
            row=StructType([one for one in taken if not one.name.startswith(hidden_columns.PREFIX)]),
            result=step.made,
            processor=step.processor,
            variables=variables,
            time_mode=step.time_mode,
            in_pandas=step.in_pandas,
            tick_ms=step.tick_ms,
        )
        return made, output


def _contents(step: Transformation, leg: Leg, keys: StructType, variables: Iterable[VariableSpec], by: str) -> str:
    """Describe the store's contents; a pipeline with another description is rejected."""
    grouped = []
    for name, key in zip(step.keys, keys, strict=True):
        column = next(column for column in leg.taken.columns if column.name == key.name)
        words = leg.taken.words(column.number)
        made = f" = {words}" if words != name else ""
        grouped.append(f"{name} {key.dataType.simpleString()}{made}")
    held = [_words(one) for one in sorted(variables, key=lambda one: one.name)]
    timers = "" if step.time_mode == "none" else ", timers apart,"
    timers += "" if step.tick_ms is None else " with ticks,"
    return brief(f"state [{'; '.join(held)}] in {step.time_mode}{timers} by {', '.join(grouped)}{by}")


def _words(variable: VariableSpec) -> str:
    ends = "" if variable.ttl_ms is None else " that expires"
    key = "" if variable.key is None else f"{variable.key.simpleString()} -> "
    return f"{variable.kind} {variable.name} {key}{variable.value.simpleString()}{ends}"


def _parsed(schema: Any, what: str) -> StructType:
    parsed = schema
    if isinstance(schema, str):
        try:
            parsed = _parse_datatype_string(schema)
        except PySparkException as error:
            raise TopologyException(f"{what}={schema!r} is not a schema: {error}") from error
    if not isinstance(parsed, StructType):
        raise TopologyException(f'{what}={schema!r} has no columns; use a schema such as "n long"')
    return parsed


def _declared(step: Transformation, where: str) -> tuple[VariableSpec, ...]:
    """Return a processor's variables by calling ``init``, as Structured Streaming does."""
    handle = _DeclaringHandle(step, where)
    name = type(step.processor).__name__
    try:
        processor = copy.deepcopy(step.processor)
        processor.init(handle)
        processor.close()
    except TopologyException:
        raise
    except Exception as error:
        raise TopologyException(
            f"{where}: {name}.init() failed on the driver, which calls it to find the variables: "
            f"{type(error).__name__}: {error}"
        ) from error
    return tuple(handle.variables.values())


class _DeclaringHandle(VariablesHandle):
    """Records the variables that a processor asks for."""

    def __init__(self, step: Transformation, where: str) -> None:
        self.variables: dict[str, VariableSpec] = {}
        self._step = step
        self._where = where

    def registerTimer(self, expiryTimestampMs: int) -> None:
        raise _no_group("registerTimer", expiryTimestampMs)

    def deleteTimer(self, expiryTimestampMs: int) -> None:
        raise _no_group("deleteTimer", expiryTimestampMs)

    def listTimers(self) -> Any:
        raise _no_group("listTimers")

    def deleteIfExists(self, stateName: str) -> None:
        self.variables.pop(stateName, None)

    def _variable(self, kind: str, name: Any, key: Any, value: Any, ttl_ms: Any) -> ValueState | ListState | MapState:
        """Record a variable."""
        what = f"{self._where}: {kind} state {name!r}"
        if not isinstance(name, str) or not name or "\0" in name or len(name.encode()) > LONGEST_NAME:
            raise TopologyException(f"{what}: a variable's name must be a string of 1 to {LONGEST_NAME} bytes")
        if name in self.variables:
            raise TopologyException(f"{what}: init() asks for two variables with this name")
        if ttl_ms is not None:
            if isinstance(ttl_ms, bool) or not isinstance(ttl_ms, int) or ttl_ms <= 0:
                raise TopologyException(f"{what}: ttlDurationMs={ttl_ms!r} must be a positive number of milliseconds")
            if self._step.time_mode != "processingtime":
                raise TopologyException(f'{what}: ttlDurationMs={ttl_ms} needs timeMode="ProcessingTime", as in Spark')
        value = _parsed(value, f"{what}: schema")
        key = None if key is None else _parsed(key, f"{what}: userKeySchema")
        for some in (value, *(() if key is None else (key,))):
            if _has_type(some, VariantType):
                # In Arrow it is a struct of bytes, and equal variants can have different bytes.
                raise TopologyException(f"{what}: a variant cannot be stored; store F.to_json() of it, a string")
            check_packable(some, what, "be kept as state")
        self.variables[name] = VariableSpec(name=name, kind=kind, key=key, value=value, ttl_ms=ttl_ms)
        made: ValueState | ListState | MapState = _KINDS[kind](None, name)
        return made


def _no_group(method: str, *args: Any) -> RuntimeError:
    return RuntimeError(f"{method}({', '.join(map(repr, args))}): timers belong to a group, and init() has none")
