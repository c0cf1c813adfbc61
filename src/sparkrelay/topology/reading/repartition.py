"""``KStream.repartition``: rows are written to an internal topic by another key, and read again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkrelay.catalyst.frames import analyzed
from sparkrelay.catalyst.jvm import items, kind
from sparkrelay.errors import TopologyException
from sparkrelay.topology.naming import check_name
from sparkrelay.topology.nodes import RepartitionNode
from sparkrelay.topology.record import begin, spark_errors, unique
from sparkrelay.topology.spread import Spread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkrelay.topology.call_site import CallSite
    from sparkrelay.topology.record import Record
    from sparkrelay.topology.rows import Rows


def repartitioned(  # noqa: PLR0917 - what the call names
    record: Record, rows: Rows, columns: Sequence[Any], name: str | None, partitions: int | None, call_site: CallSite
) -> Rows:
    """Return the rows behind a repartition topic.

    Args:
        record: of the builder.
        rows: to be written.
        columns: the key's, names or Columns.
        name: the topic's, as the user gave it.
        partitions: their count; None: as many as the source topics have.
        call_site: the user's line.

    Raises:
        TopologyException: an argument is missing or of the wrong kind; names the line.
    """
    if not columns:
        raise TopologyException(
            f"{call_site}: repartition() names no columns; one group over everything has no task of its own"
        )
    if partitions is not None and (isinstance(partitions, bool) or not isinstance(partitions, int) or partitions < 1):
        raise TopologyException(f"{call_site}: partitions={partitions!r} of repartition() must be a number from 1 on")
    numbers = [column_number(rows, column, "repartition", call_site) for column in columns]
    places = [next(place for place, one in enumerate(rows.columns) if one.number == number) for number in numbers]
    chosen = check_name(name, call_site)
    return sent_by(record, rows, places, call_site, name=chosen, partitions=partitions, explicit=True)


def sent_by(
    record: Record,
    rows: Rows,
    places: Sequence[int],
    call_site: CallSite,
    *,
    name: str | None = None,
    text: str | None = None,
    words: Sequence[str] | None = None,
    partitions: int | None = None,
    explicit: bool = False,
    changes: bool = False,
    to_all: bool = False,
) -> Rows:
    """Return rows behind a repartition topic whose key is the columns at some places.

    Args:
        record: of the builder.
        rows: to be written.
        places: of the key's columns, in their order.
        call_site: the user's line.
        name: the topic's; None for an automatic one.
        text: the step as people read it; None: the topic stands for itself.
        words: what an automatic name is made of; None: the columns' names.
        partitions: their count; None: as many as the source topics have.
        explicit: whether the user asked for the topic.
        changes: whether they are a table's, each as it was and as it is.
        to_all: whether each partition gets all rows.
    """
    names = unique(column.name for column in rows.columns)
    by = tuple(names[place] for place in places)
    if words is None:
        words = by if explicit else [rows.columns[place].name for place in places]
    node = RepartitionNode(
        call_site=call_site,
        text=text or f"repartition({', '.join(map(repr, by))})",
        given=rows,
        columns=by,
        name=name,
        words=tuple(words),
        partitions=partitions,
        explicit=explicit,
        changes=changes,
        to_all=to_all,
    )
    record.add(node, analyzed(rows.frame).output(), Spread.of_key(places, by), streaming=not changes, names=names)
    return begin(node)


def column_number(rows: Rows, column: Any, method: str, call_site: CallSite) -> int:
    """Return Catalyst's number of a column that is one of the rows' as it is.

    Raises:
        TopologyException: it is none; names the method and the line.
    """
    if isinstance(column, int):
        hint = f"; give the count as partitions={column}" if method == "repartition" else ""
        raise TopologyException(f"{call_site}: {method}() takes names and Columns, not {column!r}{hint}")
    with spark_errors(call_site):
        chosen = items(analyzed(rows.frame.select(column)).projectList())
    if [kind(one) for one in chosen] != ["AttributeReference"]:
        raise TopologyException(
            f'{call_site}: {method}() takes names of columns; give {column} one first, withColumn("name", ...)'
        )
    return int(chosen[0].exprId().id())
