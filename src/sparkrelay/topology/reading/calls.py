"""What the user has said beside the plan: arguments that Spark has no word for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparkrelay.topology.call_site import CallSite


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
        regrouped: of a grouping that several calls share: the repartition topics in front of it, which they share, too.
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
    regrouped: dict[Any, Any] = field(default_factory=dict)

    @property
    def where(self) -> str:
        """The line, for messages."""
        return str(self.call_site)
