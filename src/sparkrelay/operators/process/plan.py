"""Stateful processors on DataFrames."""

# ruff: noqa: N802, N803 - PySpark's names

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import ListState, MapState, ValueState
from pyspark.sql.types import StructType, VariantType, _has_type, _parse_datatype_string

from sparkrelay.errors import TopologyException
from sparkrelay.operators.emitting.plan import EmittingPlan
from sparkrelay.operators.process.handle import VariablesHandle
from sparkrelay.operators.process.keys import LONGEST_NAME
from sparkrelay.operators.process.run import CallProcessor
from sparkrelay.operators.process.step import Transformation
from sparkrelay.operators.process.variables import VariableSpec
from sparkrelay.runtime.compile.carried_columns import EMITTED
from sparkrelay.runtime.compile.catalyst import as_column, named, projected_sql
from sparkrelay.runtime.compile.grouping import brief, spread
from sparkrelay.runtime.compile.row_steps import checked, refuse_hidden, visible
from sparkrelay.runtime.compile.schemas import (
    arrow_schema,
    check_groupable,
    check_packable,
    hidden_fields,
    without_kafka,
)
from sparkrelay.runtime.compile.watermarks import event_time, timed_fields
from sparkrelay.runtime.contract import hidden_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame

    from sparkrelay.topology import Leg

#: Prefix of the grouping columns, which may be computed.
_KEY: Final = hidden_columns.PREFIX + "group_"
#: PySpark's variables, by kind.
_KINDS: Final[Mapping[str, Any]] = {"value": ValueState, "list": ListState, "map": MapState}


class Plan(EmittingPlan[Transformation]):
    """See :class:`EmittingPlan`."""

    def columns(self, before: StructType) -> StructType:
        """Return the processor's output columns.

        Raises:
            TopologyException: ``outputStructType`` is invalid.
        """
        del before
        where = f"{self.step.call_site}: {self.step.text}"
        columns = _parsed(self.step.output, f"{where}: outputStructType")
        for name in columns.names:
            if name.startswith(hidden_columns.PREFIX):
                raise TopologyException(
                    f"{where}: column {name!r}: names that begin with {hidden_columns.PREFIX} are reserved"
                )
            if columns.names.count(name) > 1:
                raise TopologyException(f"{where}: outputStructType has column {name!r} twice")
        return columns

    def computed(self, before: Mapping[str, str]) -> Mapping[str, str]:
        """Return nothing: the processor computes all columns."""
        del before
        return {}

    def taken(self, step: Transformation, rows: DataFrame, read: frozenset[str], hidden: Iterable[str]) -> DataFrame:
        """Return all visible columns, grouping columns, hidden columns, and event times.

        Raises:
            TopologyException: a grouping column does not exist, or has an unsuitable type.
        """
        del read
        where = str(step.call_site)
        left_out = {hidden_columns.PARTITION_TIME, hidden_columns.TOMBSTONE}
        names = without_kafka(visible(rows)).names
        # groupBy() resolves them the same way, with the same errors.
        found = checked(where, lambda: rows.select(*(as_column(key) for key in step.keys))).schema
        check_groupable(found, where)
        keys = [as_column(key).alias(f"{_KEY}{index}") for index, key in enumerate(step.keys)]
        times = []
        if step.watermark is not None:
            times.append(F.unix_micros(event_time(step, rows)).alias(hidden_columns.EVENT_MICROS))
        kept = [name for name in hidden if name not in left_out]
        taken = checked(where, lambda: rows.select(*named(names), *keys, *named(kept), *times))
        if "*" in step.text:
            refuse_hidden(where, step.text, taken, rows)
        return taken

    def runner(  # noqa: PLR0917
        self,
        leg: Leg,
        taken: DataFrame,
        columns: StructType,
        read: frozenset[str],
        computed: Mapping[str, str],
        fields: Mapping[str, Any],
    ) -> tuple[CallProcessor, StructType]:
        """Return the leg's runner, and its output columns.

        Raises:
            TopologyException: a variable cannot be stored.
        """
        step = self.step
        keys = StructType([one for one in taken.schema if one.name.startswith(_KEY)])
        variables = _declared(step, f"{step.call_site}: {step.text}")
        output = StructType([*(one for one in columns if one.name in read), *hidden_fields(EMITTED)])
        made = CallProcessor(
            **fields,
            **timed_fields(leg, step, taken, self.around),
            contents=_contents(step, taken, keys, variables, computed, spread(leg, self.around.legs)),
            output=arrow_schema(output),
            keys=arrow_schema(keys),
            key=keys,
            row=without_kafka(visible(taken)),
            result=columns,
            processor=step.processor,
            variables=variables,
            time_mode=step.time_mode,
            in_pandas=step.in_pandas,
        )
        return made, output


def _contents(  # noqa: PLR0917
    step: Transformation,
    taken: DataFrame,
    keys: StructType,
    variables: Iterable[VariableSpec],
    computed: Mapping[str, str],
    by: str,
) -> str:
    """Describe the store's contents; a pipeline with another description is rejected."""
    texts = projected_sql(taken, keys.names)
    words = []
    for key in keys:
        text = texts[key.name]
        made = f" = {computed[text]}" if text in computed else ""
        words.append(f"{text} {key.dataType.simpleString()}{made}")
    held = [_words(one) for one in sorted(variables, key=lambda one: one.name)]
    timers = "" if step.time_mode == "none" else ", timers apart,"
    return brief(f"state [{'; '.join(held)}] in {step.time_mode}{timers} by {', '.join(words)}{by}")


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
