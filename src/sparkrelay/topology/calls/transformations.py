"""Stateful processors of the user's: what ``GroupedStream.transformWithState`` writes down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sparkrelay.errors import TopologyException
from sparkrelay.operators.process.step import Transformation
from sparkrelay.topology.columns import argument_text
from sparkrelay.topology.naming import check_name
from sparkrelay.topology.nodes import EmittingNode, watermark_before

if TYPE_CHECKING:
    from sparkrelay.topology.call_site import CallSite
    from sparkrelay.topology.nodes import GroupingNode, Record

#: PySpark takes them in any case.
_TIME_MODES: Final = {"none": "None", "processingtime": "ProcessingTime", "eventtime": "EventTime"}
_OUTPUT_MODES: Final = {"append": "Append", "update": "Update"}
_METHODS: Final = ("init", "handleInputRows", "handleExpiredTimer", "close")


def transform(  # noqa: PLR0917 - as they are written
    record: Record,
    node: GroupingNode,
    processor: Any,
    output: Any,
    modes: tuple[Any, Any],
    name: Any,
    method: str,
    call_site: CallSite,
) -> EmittingNode:
    """Write down that the rows of each group go to a stateful processor.

    Args:
        record: of the builder.
        node: the grouping.
        processor: PySpark's ``StatefulProcessor``.
        output: the columns of the rows that it returns.
        modes: ``"Append"`` or ``"Update"``; and ``"None"``, ``"ProcessingTime"`` or ``"EventTime"``.
        name: of the store, or None.
        method: as the user calls it.
        call_site: the line that wrote it.

    Raises:
        TopologyException: an argument is of the wrong kind, or event time is asked for and there is none.
    """
    if isinstance(processor, type) or not all(callable(getattr(processor, one, None)) for one in _METHODS):
        hint = "; make one of it: put () behind its name" if isinstance(processor, type) else ""
        raise TopologyException(
            f"{call_site}: {method}() takes a pyspark.sql.streaming.StatefulProcessor, not {processor!r}{hint}"
        )
    if not (isinstance(output, str) and output.strip()) and not hasattr(output, "fieldNames"):
        raise TopologyException(
            f'{call_site}: {method}() takes a StructType or text such as "user string, n long" as outputStructType, '
            f"not {output!r}"
        )
    mode = _one_of(_OUTPUT_MODES, "outputMode", modes[0], method, call_site)
    time = _one_of(_TIME_MODES, "timeMode", modes[1], method, call_site)
    watermark = watermark_before(node) if time == "eventtime" else None
    if time == "eventtime" and watermark is None:
        raise TopologyException(
            f'{call_site}: {method}(timeMode="EventTime") needs to know when event time has passed: put '
            'withWatermark("time", "10 minutes") before groupBy(), with the column of event times and how late rows '
            "may come"
        )
    written = output if isinstance(output, str) else output.simpleString()
    arguments = (type(processor).__name__, written, _OUTPUT_MODES[mode], _TIME_MODES[time])
    text = f"{method}({', '.join(arguments)})"
    in_pandas = method == "transformWithStateInPandas"
    keys = node.keys, tuple(map(argument_text, node.keys)), node.words
    step = Transformation("", *keys, processor, output, time, in_pandas, watermark, call_site, f"{node.text}.{text}")
    return record.add(EmittingNode(node, step, check_name(name, call_site), None))


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
