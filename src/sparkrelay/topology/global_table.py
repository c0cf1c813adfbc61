"""Tables that every process has whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from sparkrelay.errors import TopologyException
from sparkrelay.topology.call_site import find_call_site

if TYPE_CHECKING:
    from sparkrelay.topology.record import Record
    from sparkrelay.topology.rows import Rows


class GlobalKTable:
    """A table that every process has whole. Made by ``StreamsBuilder.global_table``; streams look into it.

    Usage::

        countries = builder.global_table("countries", key=String("country"), value=Json("continent string"))
        orders.join(countries, "country").to("orders-with-continent", value=Json())
    """

    __slots__ = ("_record", "_rows")

    def __init__(self, record: Record, rows: Rows) -> None:
        self._record = record
        self._rows = rows

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        raise TopologyException(
            f"{find_call_site()}: GlobalKTable has no {name}(): it is in every process, so what came out of it would "
            "come many times. Streams look into it, stream.join(table, ...); builder.table() is for all else"
        )

    def __repr__(self) -> str:
        return f"<GlobalKTable written at {self._rows.node.call_site}>"
