"""What reads and merges the values of a store, by what the store is of."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from sparkrelay.operators.aggregate.table_aggregates import TableAggregates
from sparkrelay.operators.latest.rows import NewestRows
from sparkrelay.operators.ranking.first_rows import FirstRows
from sparkrelay.state.aggregate import AggregateCodec

if TYPE_CHECKING:
    from sparkrelay.runtime.contract.specs import StateSpec
    from sparkrelay.state.aggregate import AggregateSpec

__all__ = ["aggregate_codec", "codec_of"]


def codec_of(spec: StateSpec) -> AggregateCodec | NewestRows | FirstRows | TableAggregates:
    """Return what reads and merges the values of a store."""
    if spec.of_changes and spec.ranking is None:
        return TableAggregates(spec.aggregates)
    if spec.newest is None:
        return aggregate_codec(spec.aggregates)
    return NewestRows(spec.newest) if spec.ranking is None else FirstRows(spec.newest, spec.ranking)


@functools.lru_cache(maxsize=64)
def aggregate_codec(aggregates: tuple[AggregateSpec, ...]) -> AggregateCodec:
    """Return what reads and merges aggregates; made once for each."""
    return AggregateCodec(aggregates)
