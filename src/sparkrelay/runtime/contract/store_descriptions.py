"""What a changelog says of its store, so that its rows can be read without the pipeline.

A record of JSON under a key of its own (:data:`sparkrelay.state.changelog.SCHEMA_KEY`): what kind of store it is, the
columns of key and value as Spark's schemas, and what the values are of. docs/internals/state.md has its fields.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from sparkrelay.errors import SerializationException
from sparkrelay.records.type_names import fields_json, fields_of, type_json, type_of
from sparkrelay.runtime.contract import hidden_columns
from sparkrelay.runtime.contract.specs import RankingSpec, StateSpec, WatermarkSpec
from sparkrelay.state.aggregate import AggregateSpec

if TYPE_CHECKING:
    from sparkrelay.runtime.contract.specs import StoreSpec

__all__ = ["StoreDescription", "describe_store", "read_description"]

_VERSION: Final = 1
#: Far below what a record may have. A longer one says only what kind of store it is.
_LONGEST: Final = 256 * 1024
#: What a damaged or forged record may raise.
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
    """What a changelog says of its store.

    Attributes:
        contents: what the store holds, in words.
        spec: how its rows are read, with nothing in it of a pipeline or a cluster; None if it has none to show.
        why_not: where there is no ``spec``: what it holds instead.
        store: its name; None where a release wrote it that does not say it.
    """

    contents: str
    spec: StateSpec | None
    why_not: str = ""
    store: str | None = None

    @property
    def fields(self) -> list[pa.Field]:
        """The columns of its rows."""
        return [] if self.spec is None else list(self.spec.output)


def describe_store(spec: StoreSpec) -> bytes:
    """Return what is written into a changelog about its store."""
    said: dict[str, Any] = {"version": _VERSION, "store": spec.store, "contents": spec.contents}
    if not isinstance(spec, StateSpec):
        return _encoded(said | {"holds": spec.holds})
    if spec.ranks_beside:
        return _encoded(said | {"holds": "rows of each key, and not their places"})
    try:
        data = _encoded(said | _readable(spec))
    except ValueError as error:
        return _encoded(said | {"holds": f"what cannot be described: {error}"})
    if len(data) > _LONGEST:
        return _encoded(said | {"holds": f"rows of which the description would take {len(data)} bytes"})
    return data


def read_description(data: bytes, what: str) -> StoreDescription:
    """Read what :func:`describe_store` wrote; ``what`` names the record in errors.

    Raises:
        SerializationException: it is damaged, or of a newer release.
    """
    try:
        said = json.loads(data)
        if said["version"] != _VERSION:
            raise SerializationException(
                f"{what} describes the store in version {said['version']!r}, and this SparkRelay reads {_VERSION}. "
                "If a newer release of SparkRelay wrote it, install that one. If something else wrote it, the next "
                "owner of the task writes it anew"
            )
        contents = str(said["contents"])
        store = str(said["store"]) if "store" in said else None
        if "holds" in said:
            return StoreDescription(contents, None, str(said["holds"]), store)
        return StoreDescription(contents, _spec(contents, said), store=store)
    except _UNREADABLE as error:
        raise SerializationException(
            f"{what} does not describe the store: {error}. Something else wrote it, or it is damaged; the next owner "
            "of the task writes it anew"
        ) from error


def _readable(spec: StateSpec) -> dict[str, Any]:
    width = len(spec.keys)
    fields = [field for field in spec.output if not field.name.startswith(hidden_columns.PREFIX)]
    said: dict[str, Any] = {
        "key": {"type": "struct", "fields": fields_json(fields[:width])},
        "value": {"type": "struct", "fields": fields_json(fields[width:])},
        "table": spec.newest is not None,
        "aggregates": [_aggregate_json(aggregate) for aggregate in spec.aggregates],
        "changes": spec.of_changes,
        "partitionedBy": list(spec.repartitioned_by),
    }
    if spec.watermark is not None:
        said["window"] = {"column": spec.watermark.window, "sessions": spec.watermark.sessions}
    if spec.ranking is not None:
        order = [list(column) for column in spec.ranking.order]
        said["ranking"] = {"number": spec.ranking.number, "order": order, "count": spec.ranking.count}
    if spec.history_ms is not None:
        said["historyMs"] = spec.history_ms
    return said


def _spec(contents: str, said: dict[str, Any]) -> StateSpec:
    key, value = fields_of(said["key"]["fields"]), fields_of(said["value"]["fields"])
    window, ranking, history_ms = said.get("window"), said.get("ranking"), said.get("historyMs")
    names = [field.name for field in (*key, *value)]
    if len({*names}) < len(names):
        raise ValueError("two columns have one name")
    if window is not None and window["column"] not in {field.name for field in key}:
        raise ValueError(f"no column of the key is called {window['column']!r}")
    changes = [pa.field(hidden_columns.CHANGE, pa.int32())] if said["changes"] is True else []
    return StateSpec(
        leg="",
        subtopology=0,
        topics=(),
        spark_partitions=1,
        client={},
        map_limit=0,
        failure_key=b"",
        store="",
        changelog=None,
        contents=contents,
        compression="none",
        flush_seconds=0.0,
        keys=tuple(field.name for field in key),
        aggregates=tuple(_aggregate(one) for one in said["aggregates"]),
        input=pa.schema([*key, *changes]),
        output=pa.schema([*key, *value]),
        watermark=None
        if window is None
        else WatermarkSpec(0, window["column"], final=False, ahead_ms=0, sessions=window["sessions"] is True),
        newest=pa.schema(value) if said["table"] is True else None,
        ranking=None
        if ranking is None
        else RankingSpec(
            str(ranking["number"]),
            tuple((str(name), bool(most), bool(nulls)) for name, most, nulls in ranking["order"]),
            int(ranking["count"]),
        ),
        history_ms=None if history_ms is None else int(history_ms),
        repartitioned_by=tuple(str(name) for name in said["partitionedBy"]),
    )


def _aggregate_json(aggregate: AggregateSpec) -> dict[str, Any]:
    arguments = [] if aggregate.column is None else [(aggregate.column, aggregate.input_type)]
    return {
        "function": aggregate.function,
        "arguments": [[name, type_json(kind)] for name, kind in (*arguments, *aggregate.others)],
        "result": [aggregate.result, type_json(aggregate.result_type)],
        "distinct": aggregate.distinct,
        "subtracts": aggregate.subtracts,
        "options": _option_json(aggregate.options),
    }


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


def _option_json(option: Any) -> Any:
    if isinstance(option, tuple | list):
        return [_option_json(one) for one in option]
    if isinstance(option, bytes | bytearray):
        return {"bytes": base64.b64encode(option).decode()}
    return option


def _option(said: Any) -> Any:
    if isinstance(said, list):
        return tuple(_option(one) for one in said)
    return base64.b64decode(said["bytes"], validate=True) if isinstance(said, dict) else said


def _encoded(said: dict[str, Any]) -> bytes:
    try:
        return json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode()
    except TypeError as error:
        raise ValueError(error) from error
