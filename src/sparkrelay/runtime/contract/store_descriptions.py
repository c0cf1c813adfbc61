"""What a changelog says of its store, so that its rows can be read without the pipeline.

A record of JSON under a key of its own (:data:`sparkrelay.state.changelog.SCHEMA_KEY`): what kind of store it is, the
columns of key and value as Spark's schemas, and what the values are of. docs/internals/changelog.md has its fields;
``operators.descriptions`` reads it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from sparkrelay.runtime.contract.specs import StoreSpec

__all__ = ["VERSION", "describe_store"]

VERSION: Final = 1
#: Far below what a record may have. A longer one says only what kind of store it is.
_LONGEST: Final = 256 * 1024


def describe_store(spec: StoreSpec) -> bytes:
    """Return what is written into a changelog about its store."""
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
