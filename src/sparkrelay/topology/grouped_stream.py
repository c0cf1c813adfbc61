"""GroupedStream: rows in groups, and what may be kept of each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sparkrelay.errors import TopologyException
from sparkrelay.topology.call_site import find_call_site
from sparkrelay.topology.columns import argument_text, is_column
from sparkrelay.topology.naming import check_name, check_topic
from sparkrelay.topology.nodes import AggregationNode, LateNode, SinkNode
from sparkrelay.topology.row_steps import check_seed, flat
from sparkrelay.topology.structure import NamedAggregate

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkrelay.topology.call_site import CallSite
    from sparkrelay.topology.nodes import GroupingNode, Record

__all__ = ["GroupedStream"]

#: The KTable, which knows this class and is not known here.
TableT = TypeVar("TableT")


class GroupedStream(Generic[TableT]):
    """Rows in groups, waiting for ``agg``. Made by ``KStream.groupBy``."""

    __slots__ = ("_node", "_record", "_table")

    def __init__(self, record: Record, node: GroupingNode, table: Callable[[AggregationNode], TableT]) -> None:
        """Take what is grouped, and what makes a KTable of what is kept of it."""
        self._record = record
        self._node = node
        self._table = table

    def agg(
        self,
        *exprs: Any,
        name: str | None = None,
        logged: bool = True,
        late_to: str | None = None,
        retention: str | None = None,
    ) -> TableT:
        """Aggregate each group, as ``GroupedData.agg``.

        Args:
            exprs: Columns of aggregates, such as ``F.sum("amount").alias("total")``, and expressions of them.
            name: the store's name; its changelog is ``<application.id>-<name>-changelog``. Without it a name is made of
                the stream's name and the grouping columns.
            logged: False for a store without changelog. Less is written, but what it holds is on one disk only: a task
                that comes to another process, or whose disk is lost, goes on with an empty store. It has no standbys.
                The stores of one sub-topology have changelogs all or none.
            late_to: a topic that gets the rows which are left out because their window is over, as they came here and
                with their keys, in JSON; of sliding windows, once for each that is over. It takes ``withWatermark``.
            retention: for how long the rows of windows that are over stay in the store, such as ``"7 days"``: from the
                window's end on, by the watermark, as ``Materialized.withRetention`` of Kafka Streams. They take no
                further row. It takes ``withWatermark`` and ``F.window``.

        Raises:
            TopologyException: there are no aggregates, or an argument is of the wrong kind.
        """
        call_site = find_call_site()
        aggregates = flat(exprs)
        if not aggregates:
            raise TopologyException(f'{call_site}: agg() has no aggregates; such as agg(F.count("*").alias("n"))')
        for aggregate in aggregates:
            if not is_column(aggregate):
                raise TopologyException(
                    f'{call_site}: agg() takes Columns such as F.sum("amount").alias("total"), not {aggregate!r}'
                )
            check_seed("agg", aggregate, call_site)
        arguments = [argument_text(aggregate) for aggregate in aggregates]
        if retention is not None:
            if not isinstance(retention, str) or not retention.strip():
                raise TopologyException(
                    f'{call_site}: agg() takes a retention such as "7 days", not retention={retention!r}'
                )
            arguments.append(f"retention={retention!r}")
        return self._aggregate(aggregates, name, logged, "agg", arguments, call_site, late_to, retention)

    def count(self, *, name: str | None = None, logged: bool = True) -> TableT:
        """Count the rows of each group into a column ``count``, as ``GroupedData.count``; else as :meth:`agg`."""
        return self._aggregate((NamedAggregate(),), name, logged, "count", [], find_call_site())

    def sum(self, *cols: str, name: str | None = None, logged: bool = True) -> TableT:
        """Sum columns up into ``sum(column)``, as ``GroupedData.sum``; else as :meth:`agg`."""
        return self._of_columns("sum", "sum", cols, name, logged)

    def avg(self, *cols: str, name: str | None = None, logged: bool = True) -> TableT:
        """Average columns into ``avg(column)``, as ``GroupedData.avg``; else as :meth:`agg`."""
        return self._of_columns("avg", "avg", cols, name, logged)

    def mean(self, *cols: str, name: str | None = None, logged: bool = True) -> TableT:
        """Average columns into ``avg(column)``; the same as :meth:`avg`."""
        return self._of_columns("mean", "avg", cols, name, logged)

    def min(self, *cols: str, name: str | None = None, logged: bool = True) -> TableT:
        """Keep the smallest value of columns in ``min(column)``, as ``GroupedData.min``; else as :meth:`agg`."""
        return self._of_columns("min", "min", cols, name, logged)

    def max(self, *cols: str, name: str | None = None, logged: bool = True) -> TableT:
        """Keep the largest value of columns in ``max(column)``, as ``GroupedData.max``; else as :meth:`agg`."""
        return self._of_columns("max", "max", cols, name, logged)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise TopologyException(
            f"{find_call_site()}: GroupedStream has no {name}(): agg(...), count(), sum(), avg(), min() and max() are "
            "there"
        )

    def __repr__(self) -> str:
        return f"<GroupedStream written at {self._node.call_site}>"

    def _of_columns(self, step: str, function: str, cols: tuple[Any, ...], name: str | None, logged: bool) -> TableT:
        call_site = find_call_site()
        columns = flat(cols)
        for column in columns:
            if not (isinstance(column, str) and column.strip() and column.strip() != "*"):
                raise TopologyException(
                    f"{call_site}: {step}() takes names of columns, not {column!r}; agg() takes Columns"
                )
        if not columns:
            raise TopologyException(
                f'{call_site}: {step}() names no columns, such as {step}("amount"): which ones are numbers is not '
                "known before the pipeline runs"
            )
        aggregates = tuple(NamedAggregate(function, column) for column in columns)
        return self._aggregate(aggregates, name, logged, step, [*map(repr, columns)], call_site)

    def _aggregate(  # noqa: PLR0917 - as they are written
        self,
        aggregates: tuple[Any, ...],
        name: str | None,
        logged: bool,
        step: str,
        arguments: list[str],
        call_site: CallSite,
        late_to: str | None = None,
        retention: str | None = None,
    ) -> TableT:
        if not isinstance(logged, bool):
            raise TopologyException(f"{call_site}: {step}() takes logged=True or logged=False, not {logged!r}")
        text = f"{step}({', '.join(arguments if logged else [*arguments, 'logged=False'])})"
        node = self._record.add(
            AggregationNode(
                self._node, aggregates, check_name(name, call_site), logged, text, call_site, retention=retention
            )
        )
        if late_to is not None:
            late = self._record.add(LateNode(self._node.parent, node, call_site))
            self._record.add(SinkNode(late, check_topic(late_to, call_site), None, None, None, call_site))
        return self._table(node)
