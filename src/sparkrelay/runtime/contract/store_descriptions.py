"""The description of a store in its changelog, so that its rows can be read without the pipeline.

A JSON record under a reserved key (:data:`sparkrelay.state.changelog.SCHEMA_KEY`): the kind of store, Spark's schemas
of key and value columns, and the meaning of the values. docs/internals/changelog.md lists its fields;
``operators.descriptions`` reads it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from sparkrelay.runtime.contract.specs import StoreSpec

VERSION: Final = 1
#: Far below the limit of a record. A longer description is reduced to the kind of store.
_LONGEST: Final = 256 * 1024


def describe_store(spec: StoreSpec) -> bytes:
    """Return the description of a store for its changelog."""
    said: dict[str, Any] = {"version": VERSION, "store": spec.store, "contents": spec.contents}
    try:
        data = _encoded(said | spec.said())
    except ValueError as error:
        return _encoded(said | {"holds": f"what cannot be described: {error}"})
    if len(data) > _LONGEST:
        return _encoded(said | {"holds": f"rows of which the description would take {len(data)} bytes"})
    return data


def _encoded(said: dict[str, Any]) -> bytes:
    try:
        return json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode()
    except TypeError as error:
        raise ValueError(error) from error
