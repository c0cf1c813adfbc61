"""The order in which a leg's partitions are read."""

from dataclasses import replace

import pyarrow as pa
import pytest
from tests.unit.runtime.worker.test_decoding import spec

from sparkrelay.runtime.worker import connections
from sparkrelay.runtime.worker.fetch import _fetched
from sparkrelay.types import TopicPartition

A, B, C = TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("c", 0)


class Fetcher:
    """Answers the last partition that it is asked for first, as a broker may."""

    def fetch(self, ranges, *, columns, max_bytes, topic_ids):
        assert "value" in columns
        for partition in reversed(ranges):
            yield partition, pa.record_batch({"offset": pa.array(range(*ranges[partition]), pa.int64())})


@pytest.mark.parametrize(("in_order", "expected"), [(True, [A, B, C]), (False, [B, A, C])])
def test_partitions_are_read_one_behind_the_other_where_their_order_counts(monkeypatch, in_order, expected):
    """Or a step that goes by what comes first would do something else in another try."""
    monkeypatch.setattr(connections, "fetcher", lambda settings: Fetcher())
    found = list(_fetched(replace(spec(), in_order=in_order), {C: (0, 2), A: (5, 6), B: (1, 2)}, {}, 0))
    assert [partition for partition, _ in found] == expected
    assert sum(batch.num_rows for _, batch in found) == 4
