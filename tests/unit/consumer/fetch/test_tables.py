"""The tables that `poll` returns: two columns that no record has, and nothing loaded that nobody needs."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest

from sparkrelay.consumer.fetch.tables import TABLE_SCHEMA, ConstantColumns
from sparkrelay.records.batches.columns import KAFKA_SCHEMA
from sparkrelay.records.batches.encode import encode
from sparkrelay.types import TopicPartition


@pytest.mark.parametrize("topic", ["t", "a.topic_of-letters" * 10])
def test_topic_and_partition_stand_in_each_row(topic):
    columns = ConstantColumns()
    for rows in (0, 1, 5000, 3):
        made = {field.name: pa.nulls(rows, field.type) for field in KAFKA_SCHEMA}
        batch = columns.table_batch(TopicPartition(topic, 7), made, rows)
        batch.validate(full=True)
        assert batch.schema == TABLE_SCHEMA
        assert batch.column("topic").to_pylist() == [topic] * rows
        assert batch.column("partition").to_pylist() == [7] * rows


def test_the_first_record_does_not_import_pandas():
    """Half a second and 40 MB, at the moment when records begin to come."""
    (batch,) = encode(None, pa.array([b"x"]), timestamps=0, headers=None)
    code = f"""
import sys
from sparkrelay.consumer.fetch.fetch_buffer import FetchBuffer
from sparkrelay.consumer.fetch.fetching import Fetched
from sparkrelay.consumer.base.mailbox import Mailbox
from sparkrelay.consumer.base.subscription import SubscriptionState
from sparkrelay.types import TopicPartition
subscription = SubscriptionState()
buffer = FetchBuffer(
    subscription, Mailbox(), read_committed=True, check_crcs=True, max_decompressed=1 << 20, out_of_range=print
)
subscription.assign_by_hand([TopicPartition("t", 0)])
subscription.seek(TopicPartition("t", 0), 0)
buffer.fetched([Fetched(TopicPartition("t", 0), 0, memoryview({bytes(batch.data)!r}))], 0.0, 1)
print(buffer.collect(1, None).num_rows, "numba" in sys.modules, "pandas" in sys.modules)
"""
    reported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert reported.stdout.split() == ["1", "True", "False"], reported.stderr
