"""Joins with DataFrames that are collected: what ``join(DataFrame, on, refresh=...)`` writes down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.classic.dataframe import DataFrame

from sparkrelay.catalyst.frames import analyzed
from sparkrelay.catalyst.jvm import items, seq
from sparkrelay.errors import TopologyException
from sparkrelay.topology.columns import flat, quoted
from sparkrelay.topology.nodes import CollectedNode
from sparkrelay.topology.record import begin, named, spark_errors, unique
from sparkrelay.topology.refusals import STATIC, STREAM_ALONE

if TYPE_CHECKING:
    from sparkrelay.topology.call_site import CallSite
    from sparkrelay.topology.record import Record
    from sparkrelay.topology.rows import Rows

_HOW: Final = {"inner": "inner", "left": "left", "leftouter": "left", "left_outer": "left"}


def collected_join(  # noqa: PLR0917 - what is known of one step
    record: Record, rows: Rows, other: Any, on: Any, how: Any, refresh: Any, call_site: CallSite
) -> Rows:
    """Write down that a stream is joined with a DataFrame that is collected; return the rows behind that.

    Raises:
        TopologyException: an argument is of the wrong kind, or a column is missing.
    """
    if not (isinstance(refresh, str) and refresh.strip()):
        raise TopologyException(
            f'{call_site}: refresh= of join() takes an interval such as "10 minutes", not {refresh!r}; without it the '
            "DataFrame is evaluated anew for each micro-batch"
        )
    columns = flat((on,))
    if not isinstance(other, DataFrame) or not all(isinstance(one, str) and one.strip() for one in columns):
        raise TopologyException(
            f"{call_site}: join() with refresh= takes a DataFrame and on= as the name of a column that both sides "
            "have, "
            f'such as on="user", or a list of names, not {other!r} and {on!r}'
        )
    if not isinstance(how, str) or how.lower() not in _HOW:
        raise TopologyException(
            f'{call_site}: join() with refresh= takes how="inner" or how="left", not {how!r}: {STREAM_ALONE}'
        )
    if other.isStreaming:
        raise TopologyException(f"{call_site}: join() {STATIC}")
    given = named(rows)
    with spark_errors(call_site):
        # Spark resolves the columns, and says what is wrong with them.
        joined = given.frame.join(other, [*columns], how)
        own = given.frame.select(*columns).columns
    lower = {name.lower() for name in columns}
    others = [name for name in other.columns if name.lower() not in lower]
    called = [column.name for column in given.columns]
    names = unique([*called, *others])
    kept = other.select(*columns, *(quoted(name) for name in others))
    frame = kept.toDF(*columns, *names[len(called) :])
    node = CollectedNode(
        call_site=call_site,
        text=f"join(DataFrame, {', '.join(columns)}, {_HOW[how.lower()]}, refresh={refresh!r})",
        given=given,
        frame=frame,
        keys=tuple(next(name for name in called if name.lower() == one.lower()) for one in own),
        how=_HOW[how.lower()],
        refresh=refresh,
    )
    theirs = items(analyzed(joined).output())[len(called) :]
    output = [*items(analyzed(given.frame).output()), *theirs]
    return begin(record.add(node, seq(output), given.spread, names=names))
