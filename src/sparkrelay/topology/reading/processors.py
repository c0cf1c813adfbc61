"""Stateful processors of the user's: what ``GroupedStream.transformWithState`` writes down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import StructType, _parse_datatype_string

from sparkrelay import hidden_columns
from sparkrelay.catalyst.frames import analyzed, attributes
from sparkrelay.catalyst.intervals import interval_us
from sparkrelay.catalyst.jvm import items
from sparkrelay.catalyst.tree import read_plan
from sparkrelay.catalyst.words import words
from sparkrelay.errors import TopologyException
from sparkrelay.operators.process.step import KEY, Transformation
from sparkrelay.topology.nodes import EmittingNode
from sparkrelay.topology.reading.aggregates import key_names
from sparkrelay.topology.reading.event_times import as_timestamp, event_time, event_time_of
from sparkrelay.topology.reading.reader import Reader
from sparkrelay.topology.reading.regrouping import regrouped
from sparkrelay.topology.record import as_column, begin, spark_errors, unique, with_rows
from sparkrelay.topology.schemas import check_groupable, without_kafka
from sparkrelay.topology.spread import Spread

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkrelay.topology.call_site import CallSite
    from sparkrelay.topology.reading.calls import Call
    from sparkrelay.topology.record import Record
    from sparkrelay.topology.rows import Rows

#: PySpark takes them in any case.
_TIME_MODES: Final = {"none": "None", "processingtime": "ProcessingTime", "eventtime": "EventTime"}
_OUTPUT_MODES: Final = {"append": "Append", "update": "Update"}
_METHODS: Final = ("init", "handleInputRows", "handleExpiredTimer", "close")


def transformed(  # noqa: PLR0917 - what is known of one step
    record: Record,
    call: Call,
    known: Rows,
    grouped: DataFrame,
    processor: Any,
    output: Any,
    modes: tuple[Any, Any],
    tick: Any,
) -> Rows:
    """Write down that the rows of each group go to a stateful processor; return the rows that it returns.

    Args:
        record: of the builder.
        call: of the user's.
        known: what is grouped.
        grouped: some grouping of it by the same columns, as Spark has analysed it.
        processor: PySpark's ``StatefulProcessor``.
        output: the columns of the rows that it returns.
        modes: ``"Append"`` or ``"Update"``; and ``"None"``, ``"ProcessingTime"`` or ``"EventTime"``.
        tick: how often ``handleTick`` is called, an interval as text; None: never.

    Raises:
        TopologyException: an argument is of the wrong kind, or event time is asked for and there is none.
    """
    where, method = call.where, call.method
    if isinstance(processor, type) or not all(callable(getattr(processor, one, None)) for one in _METHODS):
        hint = "; make one of it: put () behind its name" if isinstance(processor, type) else ""
        raise TopologyException(
            f"{where}: {method}() takes a pyspark.sql.streaming.StatefulProcessor, not {processor!r}{hint}"
        )
    if not (isinstance(output, str) and output.strip()) and not hasattr(output, "fieldNames"):
        raise TopologyException(
            f'{where}: {method}() takes a StructType or text such as "user string, n long" as outputStructType, '
            f"not {output!r}"
        )
    mode = _one_of(_OUTPUT_MODES, "outputMode", modes[0], method, call.call_site)
    time = _one_of(_TIME_MODES, "timeMode", modes[1], method, call.call_site)
    tick_ms = None if tick is None else _tick_ms(tick, time, processor, f"{where}: {method}()")
    made = _parsed(output, f"{where}: {method}(): outputStructType")
    for name in made.names:
        if name.startswith(hidden_columns.PREFIX):
            raise TopologyException(
                f"{where}: column {name!r}: names that begin with {hidden_columns.PREFIX} are reserved"
            )
        if made.names.count(name) > 1:
            raise TopologyException(f"{where}: outputStructType has column {name!r} twice")
    at = read_plan(analyzed(grouped))
    given = at.by_field["groupingExpressions"]
    if not given:
        raise TopologyException(f"{where}: {method}() needs columns of groupBy(): state belongs to a key")
    names = key_names(given, at.by_field["aggregateExpressions"])
    rows = Reader(record, call, (known,)).rows(at.children[0])
    rows, keys, _, _ = regrouped(record, call, rows, given, items(at.java.groupingExpressions()), names)
    column = event_time(rows) if time == "eventtime" else None
    if time == "eventtime" and column is None:
        raise TopologyException(
            f'{where}: {method}(timeMode="EventTime") needs to know when event time has passed: put '
            'withWatermark("time", "10 minutes") before groupBy(), with the column of event times and how late rows '
            "may come"
        )
    shown = without_kafka(rows.schema).fields
    attributes_ = items(analyzed(rows.frame).output())
    called = unique(column.name for column in rows.columns)
    columns = [
        as_column(one).alias(name)
        for one, name, field in zip(attributes_, called, rows.schema, strict=True)
        if field in shown
    ]
    columns += [as_column(key).alias(f"{KEY}{index}") for index, key in enumerate(keys)]
    if column is not None:
        columns.append(F.unix_micros(as_timestamp(rows, column)).alias(hidden_columns.EVENT_MICROS))
    with spark_errors(call.call_site):
        taken = with_rows(rows, rows.frame.select(*columns), unsaid=1)
        check_groupable(StructType([field for field in taken.schema if field.name.startswith(KEY)]), where)
    arguments = (type(processor).__name__, made.simpleString(), _OUTPUT_MODES[mode], _TIME_MODES[time])
    texts = tuple(map(words, given))
    text = f"groupBy({', '.join(texts)}).{method}({', '.join(arguments)})"
    step = Transformation(
        store="",
        keys=tuple(names),
        processor=processor,
        made=made,
        time_mode=time,
        in_pandas=method == "transformWithStateInPandas",
        watermark=None if column is None else event_time_of(rows, column),
        call_site=call.call_site,
        text=text,
        tick_ms=tick_ms,
    )
    node = EmittingNode(call_site=call.call_site, text=text, given=taken, step=step, name=call.name, located=None)
    return begin(record.add(node, attributes(made), Spread({}), names=made.names))


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


def _tick_ms(tick: Any, time: str, processor: Any, where: str) -> int:
    if not isinstance(tick, str) or not tick.strip():
        raise TopologyException(f'{where} takes tick="1 minute", an interval as text, not {tick!r}')
    with spark_errors(f"{where}: tick={tick!r}"):
        ms = interval_us(tick) // 1000
    if ms < 1:
        raise TopologyException(f"{where}: tick={tick!r} must be at least a millisecond")
    if time == "none":
        raise TopologyException(f'{where}: tick={tick!r} needs timeMode="ProcessingTime" or "EventTime" to go by')
    if not callable(getattr(processor, "handleTick", None)):
        raise TopologyException(
            f"{where}: tick={tick!r} calls handleTick(keys, timerValues), and {type(processor).__name__} has none"
        )
    return ms


def check_unsupported(method: str, initial_state: Any, event_time_column: Any, call_site: CallSite) -> None:
    """Refuse what PySpark's method takes, too, and nothing here goes by.

    Raises:
        TopologyException: one of them is given.
    """
    if initial_state is not None:
        raise TopologyException(
            f"{call_site}: {method}(initialState=...) is not supported: write the rows of the initial state to the "
            "source topic first, and have handleInputRows take them"
        )
    if event_time_column != "":
        raise TopologyException(
            f"{call_site}: {method}(eventTimeColumnName={event_time_column!r}) is not supported: put withWatermark() "
            "with that column behind it"
        )


def _one_of(known: dict[str, str], argument: str, value: Any, method: str, call_site: CallSite) -> str:
    if not isinstance(value, str) or value.lower() not in known:
        raise TopologyException(
            f"{call_site}: {method}() takes {argument}={' or '.join(map(repr, known.values()))}, not {value!r}"
        )
    return value.lower()
