"""The steps of a leg that keep a store, and the tables and streams that come out of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkrelay.topology.columns import is_session_window

if TYPE_CHECKING:
    from sparkrelay.topology.call_site import CallSite


@dataclass(frozen=True, slots=True, eq=False)
class TableJoin:
    """What the rows of a leg are joined of: tables of one key, which legs of the same subtopology keep.

    Attributes:
        left: the left table's store; or a join of others.
        right: the right one's.
        columns: names of the columns that both are keyed by, in their order.
        how: ``inner``, ``left``, ``right`` or ``full``.
        call_site: the line that wrote it.
        text: the step as people read it.
        referencing: of a join by a foreign key: the left table's store, or a join of others, in other tasks; ``left``
            is the store of its rows by foreign key then, and ``columns`` are the right table's key. Else None.
    """

    left: TableJoin | str
    right: TableJoin | str
    columns: tuple[str, ...]
    how: str
    call_site: CallSite
    text: str
    referencing: TableJoin | str | None = None

    @property
    def stores(self) -> tuple[str, ...]:
        """The stores of its tables, from left to right, each once."""
        return tuple(dict.fromkeys((*_stores_of(self.left), *_stores_of(self.right))))

    @property
    def referencing_stores(self) -> tuple[str, ...]:
        """Of a join by a foreign key: the stores of the left table."""
        return () if self.referencing is None else _stores_of(self.referencing)


def _stores_of(table: TableJoin | str) -> tuple[str, ...]:
    return table.stores if isinstance(table, TableJoin) else (table,)


@dataclass(frozen=True, slots=True)
class NamedAggregate:
    """An aggregate of ``count()``, ``sum("amount")``, ``agg({"amount": "sum"})``, under PySpark's name for it.

    A marker and not a Column, because making a Column takes a running Spark session.

    Attributes:
        function: ``count``, ``sum``, ``avg``, ``min`` or ``max``.
        column: the argument; None for that of ``count()``, ``*`` for that of ``agg({"*": "count"})``.
    """

    function: str = "count"
    column: str | None = None

    @property
    def name(self) -> str:
        """The result column's."""
        if self.column is None:
            return self.function
        return f"{self.function}({'1' if self.column == '*' else self.column})"


@dataclass(frozen=True, slots=True)
class Order:
    """One of the columns that rows are ordered by.

    Attributes:
        column: its name.
        descending: True where the largest value comes first.
        nulls_first: True where nulls come first.
    """

    column: str
    descending: bool
    nulls_first: bool

    def __str__(self) -> str:
        """Return it as SQL has it."""
        return f"{self.column} {'desc' if self.descending else 'asc'} nulls {'first' if self.nulls_first else 'last'}"


@dataclass(frozen=True, slots=True)
class Ranking:
    """Which rows a table holds of each key: the first ones in an order.

    Attributes:
        number: the column that gets a row's place, from 1 on; the last of the table's keys. With ``ties`` its rank.
        order: by what rows come first; of those that are equal in all of it, the one that came first.
        count: how many rows of a key are held. With ``ties``: up to which rank.
        ties: whether rows that are equal in all of the order have one rank, however many they are.
    """

    number: str
    order: tuple[Order, ...]
    count: int
    ties: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Aggregation:
    """The stateful step of a leg.

    Attributes:
        name: the step's name.
        store: the store's name; the runtime composes ``<application.id>-<store>-changelog`` from it.
        keys: grouping columns: names (in Spark's syntax, dots and backticks included) or Columns.
        aggregates: Columns such as ``F.sum("amount")``, or a NamedAggregate.
        logged: False for a store without changelog: what it holds is on one disk only.
        call_site: the line that wrote it.
        text: the step as people read it.
        watermark: column of event times, and how late rows may come, as ``withWatermark`` has them; or None.
        final: True where only the rows of windows that are over go on, each once.
        newest: True for a table that holds rows as they came, and has no aggregates: the newest of each key.
        ranking: where it holds not the newest row of each key but the first ones in an order: which; else None.
        is_global: True for a table that every process has whole, and keeps by itself.
        of_topic: True for a table that is read from a topic of the user's, as it is (``StreamsBuilder.table``).
        retention: for how long windows that are over stay in the store, such as ``"7 days"``; or None.
        reuses_topic: True where the topic that it is read from is its changelog (``topology.optimization``).
        keeps_changelog: why it has a changelog of its own although topics are reused, in words; empty otherwise.
        answers: of a table of rows that are joined by a foreign key: the join, whose answers come in; else None.
        history: of a table of newest rows: for how long it also knows the rows before them; or None.
    """

    name: str
    store: str
    keys: tuple[Any, ...]
    aggregates: tuple[Any, ...]
    logged: bool
    call_site: CallSite
    text: str
    watermark: tuple[str, str] | None = None
    final: bool = False
    newest: bool = False
    is_global: bool = False
    retention: str | None = None
    ranking: Ranking | None = None
    of_topic: bool = False
    reuses_topic: bool = False
    keeps_changelog: str = ""
    answers: TableJoin | None = None
    history: str | None = None

    @property
    def sessions(self) -> bool:
        """True where one of the keys is ``F.session_window``: its groups merge where they touch."""
        return any(map(is_session_window, self.keys))
