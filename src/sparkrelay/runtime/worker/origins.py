"""The partitions that fetched records come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sparkrelay.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Origins:
    """The partition of each record.

    Attributes:
        partitions: the distinct partitions.
        places: index of each record's partition; None if there is one.
        rows: number of records.
    """

    partitions: Sequence[TopicPartition]
    places: NDArray[np.int32] | None
    rows: int

    @classmethod
    def of(cls, parts: Sequence[tuple[TopicPartition, pa.RecordBatch]]) -> Self:
        """Return the origins of the records of some fetches."""
        counts = [batch.num_rows for _, batch in parts]
        places = None if len(parts) == 1 else np.repeat(np.arange(len(parts), dtype=np.int32), counts)
        return cls([partition for partition, _ in parts], places, sum(counts))

    def filter(self, keep: pa.Array) -> Origins:
        """Return the origins of some of the records."""
        places = None if self.places is None else self.places[keep.to_numpy(zero_copy_only=False)]
        return Origins(self.partitions, places, keep.true_count)

    def numbers(self, values: Sequence[int]) -> pa.Array:
        """Return a column with the number of each record's partition in ``values``."""
        if self.places is None:
            return pa.array(np.full(self.rows, values[0], dtype=np.int32))
        return pa.array(np.array(values, dtype=np.int32)[self.places])

    def partition_numbers(self) -> pa.Array:
        """Return each record's partition number."""
        return self.numbers([partition.partition for partition in self.partitions])

    def topics(self) -> pa.Array:
        """Return each record's topic."""
        names = pa.array([partition.topic for partition in self.partitions])
        return names.take(self.numbers(range(len(self.partitions))))
