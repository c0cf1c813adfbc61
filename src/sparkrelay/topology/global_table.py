"""Tables that every process has whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.errors import TopologyException
from sparkrelay.topology.call_site import find_call_site
from sparkrelay.topology.record import spark_errors

if TYPE_CHECKING:
    from pyspark.sql import Column

    from sparkrelay.topology.record import Record
    from sparkrelay.topology.rows import Rows


class GlobalKTable:
    """A table that every process has whole. Made by ``StreamsBuilder.global_table``; streams look into it.

    Usage::

        countries = builder.global_table("countries", key=String("country"), value=Json("continent string"))
        orders.join(countries, "country").to("orders-with-continent", value=Json())

    Its columns are there for conditions: ``parcels.join(rates, parcels.grams.between(rates.least, rates.most))``.
    """

    __slots__ = ("_record", "_rows")

    def __init__(self, record: Record, rows: Rows) -> None:
        self._record = record
        self._rows = rows

    def __getitem__(self, name: str) -> Column:
        with spark_errors(find_call_site()):
            return self._rows.frame[name]

    def __getattr__(self, name: str) -> Column:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self._rows.frame.columns:
            return self._rows.frame[name]
        raise TopologyException(
            f"{find_call_site()}: GlobalKTable has no {name}(): it is in every process, so what came out of it would "
            "come many times. Streams look into it, stream.join(table, ...); builder.table() is for all else"
        )

    def __repr__(self) -> str:
        return f"<GlobalKTable written at {self._rows.node.call_site}>"
