"""Watermarks on DataFrames: when windows close, and the event times of steps (``withWatermark``, ``F.window``)."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import DateType, IntegerType, LongType, StructType, TimestampNTZType, TimestampType

from sparkrelay.errors import TopologyException
from sparkrelay.operators.delay.step import RECORD_TIME
from sparkrelay.operators.emitting.run import TimedSource
from sparkrelay.operators.watermarks import WindowWatermark
from sparkrelay.runtime.compile.catalyst import as_column, java, named, null_column
from sparkrelay.runtime.compile.row_steps import checked, visible
from sparkrelay.runtime.compile.schemas import without_kafka
from sparkrelay.runtime.contract import hidden_columns
from sparkrelay.state.window_keys import MOST_SOURCES
from sparkrelay.topology.columns import argument_text, session_gap

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField

    from sparkrelay.operators.emitting.plan import Surroundings
    from sparkrelay.operators.emitting.step import EmittingStep
    from sparkrelay.runtime.topics.topic_names import TopicNames
    from sparkrelay.topology import Aggregation, Leg, Lookup

log = logging.getLogger(__name__)

#: Spark's metadata of a column made by ``F.window``.
_WINDOW = "spark.timeWindow"
#: The same for ``F.session_window``.
_SESSION = "spark.sessionWindow"
#: What is not a column in an expression's text: literals, the time zone, sizes of windows, SQL keywords.
_NO_COLUMNS = re.compile(
    r"'(?:[^'\\]|\\.)*'| in [\w/:+-]+(?=, | with |$)|(?:, -?\d+ days?)?, \d+:\d\d:\d\d[^)]*"
    r"|\b(?:CAST|AS|TIMESTAMP|TIMESTAMP_NTZ|DATE|BIGINT|STRING|INTERVAL|CASE|WHEN|THEN|ELSE|END|AND|OR|NOT|IS|NULL)\b"
)
_COLUMN = re.compile(r"(?:`[^`]+`|\b[A-Za-z_]\w*)(?:\.(?:`[^`]+`|\w+))*(?![\w.(])")
#: Parsed intervals, in µs: each leg needs the same few.
_INTERVALS: dict[str, int] = {}
_ALONE = "F.session_window() stands by itself among the columns of groupBy(), and with no other window"


def watermark_spec(
    aggregation: Aggregation,
    projected: DataFrame,
    keys: Sequence[StructField],
    ahead_ms: int,
    sources: int = 0,
    *,
    computed: Mapping[str, str],
    limited: bool = False,
) -> WindowWatermark | None:
    """Return when the windows of a grouping close; None if they never do.

    Args:
        aggregation: the grouping.
        projected: its keys and arguments.
        keys: its keys.
        ahead_ms: event times further ahead of the machine's clock than this do not advance the watermark.
        sources: number of source topics with watermarks of their own, or 0.
        computed: column -> expression, of its keys and the event time.
        limited: True if tasks that write a source topic may lag: then it has a watermark of its own, too.

    Raises:
        TopologyException: ``outputMode`` or ``retention`` needs a window; a delay or retention is invalid or negative;
            or there are too many sources.
    """
    windows = [field.name for field in keys if _is_window(projected.schema[field.name])]
    where = str(aggregation.call_site)
    sessions = [name for name in windows if projected.schema[name].metadata.get(_SESSION)]
    if aggregation.sessions and (len(sessions) != 1 or len(windows) > 1):
        raise TopologyException(f"{where}: {aggregation.text}: {_ALONE}")
    if sessions and not (aggregation.sessions or aggregation.newest):
        # In Spark, they merge.
        raise TopologyException(
            f"{where}: {aggregation.text}: the sessions in column {sessions[0]!r} were made before, and do not merge "
            f"here; write F.session_window() in groupBy(), or group by {sessions[0]}.start and {sessions[0]}.end"
        )
    if aggregation.watermark is not None and windows:
        _require_same_time(aggregation, windows, computed, where)
    if not windows:
        if aggregation.final:
            raise TopologyException(
                f'{where}: outputMode("append") gives the final row of each window, and this grouping has none: '
                'group by F.window("time", "1 hour") too'
            )
        if aggregation.retention is not None:
            raise TopologyException(
                f"{where}: retention={aggregation.retention!r} keeps windows that are over, and this grouping has "
                'none: group by F.window("time", "1 hour") too'
            )
        if aggregation.watermark is not None:
            log.warning("%s: without F.window among its columns, the groups of a watermark never end", where)
        return None
    if aggregation.watermark is None:
        log.warning(
            "%s: the windows of store %r are kept for ever; put withWatermark() before groupBy() to have them end",
            where,
            aggregation.store,
        )
        return None
    _require_zone(projected.schema[windows[0]], where)
    column, delay = aggregation.watermark
    delay_ms = interval_ms(projected, delay, f"{where}: withWatermark({column!r}, {delay!r})")
    retention_ms = 0
    if aggregation.retention is not None:
        retention_ms = interval_ms(
            projected, aggregation.retention, f"{where}: agg(..., retention={aggregation.retention!r}), read as a delay"
        )
    if sources > MOST_SOURCES:
        raise TopologyException(
            f"{where}: max.task.idle.ms is for groupings of {MOST_SOURCES} topics at most, and this one reads "
            f"{sources}; leave it at 0"
        )
    return WindowWatermark(delay_ms, windows[0], aggregation.final, ahead_ms, retention_ms, sources > 1 or limited)


def check_sessions(aggregation: Aggregation, rows: DataFrame) -> None:
    """Reject session windows that cannot be stored (TopologyException)."""
    where = f"{aggregation.call_site}: {aggregation.text}"
    keys = [argument_text(key).strip('"').lower() for key in aggregation.keys]
    if not any("session_window(" in key for key in keys):
        return
    windows = [key for key in keys if "window(" in key]
    if not aggregation.sessions or len(windows) > 1:
        raise TopologyException(f"{where}: {_ALONE}")
    if aggregation.watermark is None:
        raise TopologyException(
            f"{where}: sessions merge as rows come, and without a watermark every session there has been would be kept "
            'for ever; put withWatermark("time", "10 minutes") before groupBy(), how late rows may come'
        )
    for gap in map(session_gap, aggregation.keys):
        # Spark silently drops rows with other gaps.
        if (
            gap is not None
            and interval_us(rows, gap, f"{where}: gap {gap!r} of F.session_window(), read as a delay") == 0
        ):
            raise TopologyException(f"{where}: gap {gap!r} of F.session_window() is no time at all; give a longer one")


def _is_window(field: StructField) -> bool:
    return bool(field.metadata.get(_WINDOW) or field.metadata.get(_SESSION))


def with_window(aggregation: Aggregation, rows: DataFrame, hidden: Sequence[str]) -> DataFrame:
    """Return rows with their window in a grouping; with sliding windows, once for each window.

    Args:
        aggregation: the grouping.
        rows: its input.
        hidden: their hidden columns.

    Raises:
        TopologyException: it has no window, or one that is not deterministic.
    """
    where = str(aggregation.call_site)
    keys = [as_column(key) for key in aggregation.keys]
    fields = checked(where, lambda: rows.select(*keys)).schema
    found = [key for key, field in zip(keys, fields, strict=True) if _is_window(field)]
    if not found:
        raise TopologyException(
            f'{where}: late_to= is for the rows whose window is over, and this grouping has none: group by F.window("'
            f'{"" if aggregation.watermark is None else aggregation.watermark[0]}", "1 hour") too'
        )
    names = [*without_kafka(visible(rows)).names, *hidden]
    columns = named(names)
    timed = checked(where, lambda: rows.select(*columns, found[0].alias(hidden_columns.WINDOW)))
    # Catalyst prunes everything that neither the window nor a filter needs.
    if not timed.select(hidden_columns.WINDOW)._jdf.queryExecution().optimizedPlan().deterministic():
        raise TopologyException(
            f"{where}: late_to=: a row's window, or whether there is a row, is not deterministic, so that it could be "
            "late in one leg and not in the other. Put repartition(...) behind the step that draws"
        )
    return timed


def timed_sources(
    legs: Sequence[Leg],
    leg: Leg,
    rows: DataFrame,
    names: TopicNames,
    where: str,
    *,
    times: Mapping[str, str] = MappingProxyType({}),
) -> tuple[tuple[TimedSource, ...], tuple[str, ...]]:
    """Return the source topics of a step that emits a stream, each with a watermark, and the names of a leg's own.

    A topic that two legs read by the same time, as in a join of a stream with itself, is one source. With times that
    are computed differently it is two.

    Args:
        legs: the legs that share the step's store.
        leg: one of them.
        rows: any frame, for Spark's parser of intervals.
        names: Kafka's names of topics.
        where: the user's line and step, for messages.
        times: leg -> expression of its event time, for steps of several legs.

    Raises:
        TopologyException: there are too many, or a delay is invalid.
    """
    sources = {one.id: _timed_sources(one, rows, names) for one in legs}
    #: Source's name -> expression of its time in the first leg that reads it.
    known: dict[str, str] = {}
    for one in legs:
        if one.join is not None and one.id in times:
            time, own = times[one.id], f" of the {one.join.side} stream"
            sources[one.id] = [
                source if known.setdefault(source.name, time) == time else replace(source, name=source.name + own)
                for source in sources[one.id]
            ]
    together = tuple(dict.fromkeys(source for some in sources.values() for source in some))
    if len(together) > MOST_SOURCES:
        # A store's header with more sources could be written, but not read.
        raise TopologyException(f"{where}: its streams read {len(together)} topics; {MOST_SOURCES} are the most")
    return together, tuple(source.name for source in sources[leg.id])


def timed_fields(
    leg: Leg,
    step: EmittingStep,
    rows: DataFrame,
    around: Surroundings,
    *,
    legs: Sequence[Leg] = (),
    times: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the fields of a step's ``EmittingRunner`` for its store and its watermark.

    Args:
        leg: the leg.
        step: its stateful step.
        rows: any frame, for Spark's parser of intervals.
        around: the pipeline.
        legs: the legs that share the store, if there are several.
        times: leg -> expression of its event time, if that is not a source column.

    Raises:
        TopologyException: too many topics are read, or a delay is invalid.
    """
    where = f"{step.call_site}: {step.text}"
    sources, own_sources = timed_sources(legs or [leg], leg, rows, around.names, where, times=times or {})
    return {
        "store": step.store,
        "changelog": around.names.changelog(step.store) if step.logged else None,
        "delay_ms": max((source.delay_ms for source in sources if source.name in own_sources), default=0),
        "ahead_ms": around.config.event_time_after_max_ms,
        "sources": sources,
        "own_sources": own_sources,
    }


def _timed_sources(leg: Leg, rows: DataFrame, names: TopicNames) -> list[TimedSource]:
    step = leg.emitting
    if step is None or step.watermark is None:
        return []
    time, delay = step.watermark
    delay_ms = interval_ms(rows, delay, f"{step.call_site}: withWatermark({time!r}, {delay!r})")
    if step.waits is not None:
        delay_ms += interval_ms(rows, step.waits, f"{step.call_site}: {step.text}, read as a delay")
    return [TimedSource(f"{topic} {time} {delay}", topic, delay_ms) for topic in names.sources(leg)]


def event_time(step: Aggregation | EmittingStep | Lookup, rows: DataFrame) -> Column:
    """Return the event time of rows, a timestamp.

    Raises:
        TopologyException: the watermark's column is missing, or not a time.
    """
    assert step.watermark is not None
    name, _ = step.watermark
    if name == RECORD_TIME:
        return F.timestamp_millis(hidden_columns.TIMESTAMP)
    where = f"{step.call_site}: withWatermark({name!r}, ...)"
    try:
        field = checked(where, lambda: rows.select(name)).schema[0]
    except TopologyException as error:
        raise TopologyException(
            f"{error}. A watermark does not follow a column that is renamed, here, and needs the column until rows are "
            "grouped, joined or deduplicated: write withWatermark() after the step that renames it, with the new name, "
            "and drop the column later"
        ) from error
    if isinstance(field.dataType, StructType) and {"start", "end"} == {*field.dataType.names}:
        # A window of an earlier grouping; F.window() of it uses the same time.
        return F.window_time(name)
    if not isinstance(field.dataType, TimestampType | DateType):
        number = isinstance(field.dataType, LongType | IntegerType)
        how = f'F.timestamp_millis("{name}")' if number else f'F.col("{name}").cast("timestamp")'
        raise TopologyException(
            f"{where} takes a timestamp or a date, and {name!r} is {field.dataType.simpleString()}; make one of it "
            f'first: withColumn("{name}", {how})'
        )
    return F.col(name).cast("timestamp")


def _require_same_time(
    aggregation: Aggregation, windows: Sequence[str], computed: Mapping[str, str], where: str
) -> None:
    """Reject a window of another column than the watermark's: it would close by an unrelated time.

    The source columns of both are compared: one must be computed from the other's.
    """
    assert aggregation.watermark is not None
    time, all_of_time = _columns_in(computed.get(hidden_columns.EVENT_TIME, ""))
    for name in windows:
        window, all_of_window = _columns_in(text := computed.get(name, ""))
        if window and time and all_of_time.isdisjoint(window) and all_of_window.isdisjoint(time):
            raise TopologyException(
                f"{where}: {name!r} is {text}, and the watermark before it of {aggregation.watermark[0]!r}: windows "
                "end by their own time; use one column for both"
            )


def _require_zone(window: StructField, where: str) -> None:
    """Reject a window of local times: the watermark cannot close it."""
    assert isinstance(window.dataType, StructType), "a window has a start and an end"
    if isinstance(window.dataType["end"].dataType, TimestampNTZType):
        raise TopologyException(
            f"{where}: {window.name!r} is a window of timestamp_ntz, which has no zone as the watermark has; make "
            'the window of a timestamp, F.window(F.col("time").cast("timestamp"), ...)'
        )


def _columns_in(text: str) -> tuple[set[str], set[str]]:
    """Return the columns in a text of ``computed_from``, before ``with`` and in all."""
    text = _NO_COLUMNS.sub("", text).lower()
    head, _, rest = text.partition(" with ")
    first = set(_COLUMN.findall(head))
    return first, first | set(_COLUMN.findall(rest))


def interval_ms(rows: DataFrame, interval: str, where: str) -> int:
    """Return an interval in ms, parsed like the delay of a watermark: a month has 31 days.

    Raises:
        TopologyException: it is invalid or negative.
    """
    return interval_us(rows, interval, where) // 1000


def interval_us(rows: DataFrame, interval: str, where: str) -> int:
    """Return an interval in µs, like :func:`interval_ms`."""
    if type(interval) is not str or interval not in _INTERVALS:
        some = rows.select(null_column(TimestampType(), "time"))
        node: Any = checked(where, lambda: some.withWatermark("time", interval))._jdf.queryExecution().logical()
        unit = java("java.util.concurrent.TimeUnit").MICROSECONDS
        durations = java("org.apache.spark.sql.catalyst.util.IntervalUtils")
        _INTERVALS[interval] = int(durations.getDuration(node.delay(), unit, 31))
    return _INTERVALS[interval]
