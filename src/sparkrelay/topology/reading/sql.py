"""Queries in SQL over the streams and tables of a builder."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from py4j.java_gateway import is_instance_of
from pyspark.sql.classic.dataframe import DataFrame

from sparkrelay.catalyst.frames import analyzed, frame_of
from sparkrelay.catalyst.jvm import java, kind
from sparkrelay.errors import TopologyException
from sparkrelay.topology.reading.calls import check_literals
from sparkrelay.topology.reading.reader import Reader
from sparkrelay.topology.record import spark_errors
from sparkrelay.topology.rows import Rows, Written

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.topology.reading.calls import Call
    from sparkrelay.topology.record import Record

_PLANS: Final = "org.apache.spark.sql.catalyst.plans.logical"
_COMMANDS: Final = ("Command", "ParsedStatement", "CompoundPlanStatement")
_PLACE = re.compile(r"\{(\w+)\}")


def read_sql(record: Record, call: Call, query: str, frames: Mapping[str, Any], parsed: Any = None) -> Rows:
    """Return the rows that a query gives.

    Args:
        record: of the builder.
        call: of the user's.
        query: its text.
        frames: what ``{name}`` stands for in it.
        parsed: the query as Spark has parsed it, in the JVM, where the text is a statement around it.

    Raises:
        TopologyException: Spark does not understand it, or something in it cannot be done with streams and tables.
    """
    check_literals(query, call)
    views: dict[str, Any] = {name: rows.frame for name, rows in record.views.items() if _names(query, name)}
    known = [rows for name, rows in record.views.items() if name in views]
    given: dict[str, str] = {}
    for name, frame in frames.items():
        found = getattr(frame, "_rows", None)
        if found is not None and frame._record is not record:
            raise TopologyException(f"{call.where}: {name}= of sql() is of another builder")
        if found is None and not isinstance(frame, DataFrame):
            raise TopologyException(
                f"{call.where}: {name}= of sql() takes a stream, a table or a DataFrame, not {frame!r}"
            )
        given[name] = f"sparkrelay_given_{name}"
        views[given[name]] = frame if found is None else found.frame
        if found is not None:
            known.append(found)
    missing = [name for name in _PLACE.findall(query) if name not in given]
    if missing:
        raise TopologyException(
            f"{call.where}: {{{missing[0]}}} in the query of sql() stands for nothing: give {missing[0]}= a stream, "
            "a table "
            "or a DataFrame"
        )
    text = _PLACE.sub(lambda match: given[match[1]], query)
    # Views of the query's own: those of the session stay as they are.
    session = record.spark._jsparkSession.cloneSession()
    rows_of = java("org.apache.spark.sql.classic.Dataset").ofRows
    with spark_errors(call.call_site):
        for name, frame in views.items():
            rows_of(session, analyzed(frame)).createOrReplaceTempView(_quoted(name))
        if parsed is None:
            parsed = session.sessionState().sqlParser().parsePlan(text)
            _check_is_query(record, call, parsed)
        frame = rows_of(session, parsed)
        plan = frame.queryExecution().analyzed()
        made = frame_of(plan, record.spark)
    for rows in known:
        record.use(rows)
    read = Reader(record, call, known).read(made)
    if read.written and read.written[-1].call_site == call.call_site:
        return read
    written = (*read.written, Written(call.call_site, call.method, read.frame))
    return Rows(read.node, read.frame, written, known=read.known_plan)


def _check_is_query(record: Record, call: Call, parsed: Any) -> None:
    """Refuse commands, which Spark would run at once.

    Raises:
        TopologyException: it is one.
    """
    within = parsed.child() if kind(parsed) == "UnresolvedWith" else parsed
    if any(is_instance_of(record.spark.sparkContext._gateway, within, f"{_PLANS}.{name}") for name in _COMMANDS):
        raise TopologyException(
            f"{call.where}: {call.method}() takes a query, not {kind(within)}: write what it returns with "
            'to("topic"), or run statements with script()'
        )


def _names(query: str, name: str) -> bool:
    """Return whether a query may speak of a view."""
    return re.search(rf"(?<![\w.]){re.escape(name)}(?![\w])", query, re.IGNORECASE) is not None


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"\w+", name) else "`" + name.replace("`", "``") + "`"
