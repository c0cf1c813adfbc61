"""What the user has said beside the plan: arguments that Spark has no word for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from pyspark.sql.classic.column import Column

from sparkrelay.errors import TopologyException

if TYPE_CHECKING:
    from sparkrelay.catalyst.tree import Plan
    from sparkrelay.topology.call_site import CallSite
    from sparkrelay.topology.record import Record
    from sparkrelay.topology.rows import Rows


#: A literal that Spark reads once, with the text.
_STAYS: Final = re.compile(
    r"\b(date|timestamp(?:_ntz|_ltz)?)\s*'\s*((?:now|today|tomorrow|yesterday)\b|T?\d{1,2}:)[^']*'", re.IGNORECASE
)


def check_literals(text: Any, call: Call) -> None:
    """Refuse literals such as ``date'today'`` in SQL text.

    Raises:
        TopologyException: there is one.
    """
    if isinstance(text, list | tuple):
        for one in text:
            check_literals(one, call)
        return
    if isinstance(text, Column):
        # Of F.expr() it is the text.
        text = str(text._jc.toString())
    if isinstance(text, str) and (found := _STAYS.search(text)) is not None:
        instead = "current_date()" if found[1].lower() == "date" else "current_timestamp()"
        raise TopologyException(
            f"{call.where}: {found[0]} in {call.method}() is read once, with the text, and would stay at that time; "
            f"write {instead}, which each micro-batch reads anew"
        )


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the user's.

    Attributes:
        call_site: the line that wrote it.
        method: what was called.
        name: of the step's store, or None.
        topic: of the repartition topic in front of it, or None.
        logged: False for a store without changelog.
        late_to: a topic for rows whose window is over, or None.
        retention: for how long windows that are over stay readable, or None.
        within: of a join of streams: how far apart event times may be; how much earlier and later; or None.
        regrouped: of a grouping that several calls share: the repartition topics in front of it, which they share, too;
            None of others, since several groupings of one query are told apart by nothing that is in their words.
        grace: of a lookup: for how long rows wait for a table's that come late, or None.
    """

    call_site: CallSite
    method: str
    name: str | None = None
    topic: str | None = None
    logged: bool = True
    late_to: str | None = None
    retention: str | None = None
    within: tuple[str, str] | None = None
    grace: str | None = None
    regrouped: dict[Any, Any] | None = None

    @property
    def where(self) -> str:
        """The line, for messages."""
        return str(self.call_site)


class Reading(Protocol):
    """The reader of a plan, as those see it that read one kind of node.

    Attributes:
        record: of the builder.
        call: of the user's, that made the plan.
    """

    record: Record
    call: Call

    def rows(self, plan: Plan) -> Rows:
        """Return the rows that a node of the plan makes."""
        ...

    def has_leaf(self, plan: Plan) -> bool:
        """Return whether rows of the pipeline are in a plan."""
        ...


def both_ways(within: object, call_site: CallSite) -> tuple[str, str] | None:
    """Return how much earlier and how much later a row may be, from ``within=`` of a join of streams.

    Raises:
        TopologyException: it is neither an interval nor a pair of them; names the line.
    """
    span = (within, within) if isinstance(within, str) else within
    match span:
        case None:
            return None
        case (str() as earlier, str() as later) if isinstance(span, tuple) and earlier.strip() and later.strip():
            return earlier, later
    raise TopologyException(
        f'{call_site}: join() of two streams takes within=, such as within="10 minutes", or within=("0 seconds", '
        f'"1 hour"), not {within!r}'
    )
