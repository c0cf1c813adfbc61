"""Decoding of store descriptions (``runtime.contract.store_descriptions``) that a changelog carries."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from sparkrelay.errors import SerializationException
from sparkrelay.operators.aggregate.layout import AggregateLayout, SessionsLayout
from sparkrelay.operators.history.layout import HistoryLayout
from sparkrelay.operators.latest.layout import LatestLayout
from sparkrelay.operators.ranking.layout import PlacesLayout
from sparkrelay.operators.ranking.row_order import RowRanking
from sparkrelay.records.type_names import fields_of, type_of
from sparkrelay.runtime.contract.store_descriptions import VERSION
from sparkrelay.state.aggregate import AggregateSpec

if TYPE_CHECKING:
    from sparkrelay.operators.table.layout import TableLayout

#: Raised by damaged or forged records.
_UNREADABLE: Final = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    RecursionError,
    OverflowError,
    pa.ArrowException,
)


@dataclass(frozen=True, slots=True)
class StoreDescription:
    """A store as its changelog describes it.

    Attributes:
        contents: the store's contents, in words.
        layout: format of its rows; None if it has no rows to show.
        why_not: without a ``layout``: what the store holds instead.
        store: its name; None if written by a release that did not record it.
    """

    contents: str
    layout: TableLayout | None
    why_not: str = ""
    store: str | None = None

    @property
    def fields(self) -> list[pa.Field]:
        """Columns of its rows."""
        return [] if self.layout is None else list(self.layout.columns)


def read_description(data: bytes, what: str) -> StoreDescription:
    """Return the description that ``describe_store`` wrote; ``what`` names the record in errors.

    Raises:
        SerializationException: the record is damaged, or written by a newer release.
    """
    try:
        said = json.loads(data)
        if said["version"] != VERSION:
            raise SerializationException(
                f"{what} has a store description of version {said['version']!r}; this SparkRelay reads {VERSION}. "
                "If a newer release of SparkRelay wrote it, install that one. If something else wrote it, the next "
                "owner of the task replaces it"
            )
        contents = str(said["contents"])
        store = str(said["store"]) if "store" in said else None
        if "holds" in said:
            return StoreDescription(contents, None, str(said["holds"]), store)
        return StoreDescription(contents, _layout(store or "", said), store=store)
    except _UNREADABLE as error:
        raise SerializationException(
            f"{what} is not a valid store description: {error}. Something else wrote it, or it is damaged; the next "
            "owner of the task replaces it"
        ) from error


def _layout(store: str, said: dict[str, Any]) -> TableLayout:
    key, value = fields_of(said["key"]["fields"]), fields_of(said["value"]["fields"])
    window, ranking, history_ms = said.get("window"), said.get("ranking"), said.get("historyMs")
    names = [field.name for field in (*key, *value)]
    if len({*names}) < len(names):
        raise ValueError("duplicate column name")
    if window is not None and window["column"] not in {field.name for field in key}:
        raise ValueError(f"the key has no column {window['column']!r}")
    columns: dict[str, Any] = {
        "store": store,
        "keys": pa.schema(key),
        "row": pa.schema(value),
        "window": None if window is None else window["column"],
        "repartitioned_by": tuple(str(name) for name in said["partitionedBy"]),
    }
    if history_ms is not None:
        return HistoryLayout(**columns, history_ms=int(history_ms))
    if ranking is not None:
        order = tuple((str(name), bool(most), bool(nulls)) for name, most, nulls in ranking["order"])
        return PlacesLayout(**columns, ranking=RowRanking(str(ranking["number"]), order, int(ranking["count"])))
    if said["table"] is True:
        return LatestLayout(**columns)
    make = SessionsLayout if window is not None and window["sessions"] is True else AggregateLayout
    aggregates = tuple(_aggregate(one) for one in said["aggregates"])
    return make(**columns, aggregates=aggregates, of_changes=said["changes"] is True, of_all="ofAll" in said)


def _aggregate(said: dict[str, Any]) -> AggregateSpec:
    arguments = [(str(name), type_of(kind)) for name, kind in said["arguments"]]
    column, kind = arguments[0] if arguments else (None, pa.int64())
    result, result_type = said["result"]
    return AggregateSpec(
        str(said["function"]),
        column,
        kind,
        type_of(result_type),
        str(result),
        tuple(arguments[1:]),
        said["distinct"] is True,
        said["subtracts"] is True,
        tuple(_option(one) for one in said["options"]),
    )


def _option(said: Any) -> Any:
    if isinstance(said, list):
        return tuple(_option(one) for one in said)
    return base64.b64decode(said["bytes"], validate=True) if isinstance(said, dict) else said
