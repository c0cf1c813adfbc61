"""All rows of a store as a table, of this instance and of all."""

import pyarrow as pa
import pytest
from tests.doubles.state_steps import state_spec

from sparkrelay.config import StreamsConfig
from sparkrelay.errors import StateStoreNotAvailableException
from sparkrelay.operators.table.reading import StoreRead
from sparkrelay.runtime.queries.local_stores import ACTIVE, LocalStores, LocalTask
from sparkrelay.runtime.queries.query import QueryScope
from sparkrelay.runtime.queries.routing import all_rows
from sparkrelay.types import TaskId

SPEC = state_spec([("user", pa.string())], [], [("n", pa.int64())], (), partitioned_by=("user",))
CONFIG = StreamsConfig.from_dict({"application.id": "app", "bootstrap.servers": "b:9092", "queries.max.rows": 2})


class Queries:
    """An instance that has so many rows in each of its partitions."""

    def __init__(self, held):
        self._held = held
        self.local = LocalStores(lambda: self, self.tasks)
        self.group = self

    def spec(self, _):
        return SPEC

    def width(self, _):
        return len(self._held)

    def is_global(self, _):
        return False

    def require_running(self):
        pass

    def tasks(self, _):
        for partition, held in enumerate(self._held):
            users = [f"user-{partition}-{number}" for number in range(held)]

            def read(spec, reading, users=users):
                left = [user for user in users if user.encode() >= reading.start]
                some = left if reading.most is None else left[: reading.most]
                rows = [{"user": user, "n": int(user[-1])} for user in some]
                following = some[-1].encode() + b"\0" if len(some) < len(left) else None
                return StoreRead(pa.RecordBatch.from_pylist(rows, pa.schema([*spec.output][:2])), following)

            yield LocalTask(TaskId(0, partition), f"0_{partition}", ACTIVE, 7, width=len(self._held), read=read)


@pytest.mark.parametrize("everywhere", [True, False])
@pytest.mark.parametrize("held", [[5], [3, 0, 2], [0, 0, 1], [2, 4]])
def test_all_rows_are_in_the_table_and_no_batch_is_empty(held, everywhere):
    """PySpark's createDataFrame stops at an empty one."""
    table = all_rows(Queries(held), CONFIG, "counts", QueryScope(), everywhere=everywhere)
    assert [row["user"] for row in table.to_pylist()] == [
        f"user-{partition}-{number}" for partition, count in enumerate(held) for number in range(count)
    ]
    assert all(batch.num_rows for batch in table.to_batches())


@pytest.mark.parametrize("everywhere", [True, False])
def test_a_table_without_rows_has_the_columns(everywhere):
    table = all_rows(Queries([0, 0]), CONFIG, "counts", QueryScope(), everywhere=everywhere)
    assert (table.num_rows, table.schema.names) == (0, ["user", "n"])


def test_before_there_is_an_assignment_nobody_answers():
    with pytest.raises(StateStoreNotAvailableException, match="no assignment yet"):
        all_rows(Queries([]), CONFIG, "counts", QueryScope(), everywhere=True)
