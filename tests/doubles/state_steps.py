"""What a stateful step is given: itself, as workers run it, and a command for one task."""

import pyarrow as pa

from sparkrelay import hidden_columns
from sparkrelay.client.transactions import ProducerIdentity
from sparkrelay.operators.aggregate.layout import AggregateLayout, SessionsLayout
from sparkrelay.operators.aggregate.run import AggregateRunner
from sparkrelay.operators.history.layout import HistoryLayout
from sparkrelay.operators.history.run import HistoryRunner
from sparkrelay.operators.latest.layout import LatestLayout
from sparkrelay.operators.latest.run import LatestRunner
from sparkrelay.operators.ranking.layout import PlacesLayout, RowsBesideLayout
from sparkrelay.operators.ranking.tables import RankedTableRunner
from sparkrelay.operators.ranking.windows import RankedWindowsRunner
from sparkrelay.operators.sessions.run import SessionsRunner
from sparkrelay.operators.table.grouping import GroupedRunner
from sparkrelay.runtime.contract.commands import TaskCommand
from sparkrelay.types import TaskId, TopicPartition

HIDDEN = [(hidden_columns.PARTITION, pa.int32()), (hidden_columns.TIMESTAMP, pa.int64())]
#: What the runner of a step says that no test of the step alone looks at.
SURROUNDINGS = {
    "leg": "leg",
    "subtopology": 0,
    "spark_partitions": 1,
    "client": {},
    "compression": "none",
    "flush_seconds": 1.0,
    "map_limit": 1 << 24,
    "failure_key": b"",
}


def table_step(keys, arguments, results, kinds, *, window=None, by=(), **more):
    """Return a step that keeps a table of the rows of `orders`.

    Args:
        keys: the columns that group, `(name, type)` each.
        arguments: those that are aggregated, or kept.
        results: those of a row behind its key.
        kinds: the class of the step, that of its layout, and what that is given besides.
        window: which of the keys is a window that ends.
        by: the columns by which a repartition topic in front is partitioned.
        more: further fields of the step.
    """
    make, layout, facts = kinds
    columns = {"store": "counts", "keys": pa.schema(keys), "row": pa.schema(results), "window": window}
    return make(
        **SURROUNDINGS,
        topics=("orders",),
        store="counts",
        changelog="app-counts-changelog",
        layout=layout(**columns, repartitioned_by=by, partitioned_by=more.pop("partitioned_by", None), **facts),
        input=pa.schema([*keys, *arguments, *HIDDEN, *more.pop("times", ())]),
        output=pa.schema([*keys, *results, *HIDDEN, (hidden_columns.KEY, pa.binary())]),
        contents="counts",
        **more,
    )


def aggregates_of(aggregates, **facts):
    """Return the kinds of a step that aggregates; the last of the aggregates is the timestamp."""
    return AggregateRunner, AggregateLayout, {"aggregates": aggregates, **facts}


def sessions_of(aggregates):
    """The same of session windows."""
    return SessionsRunner, SessionsLayout, {"aggregates": aggregates}


NEWEST_ROWS = LatestRunner, LatestLayout, {}


def history_of(history_ms):
    """Return the kinds of a step that keeps a table with a history."""
    return HistoryRunner, HistoryLayout, {"history_ms": history_ms}


def places_of(ranking):
    """Return the kinds of a step that keeps the first rows of each key of a stream."""
    return GroupedRunner, PlacesLayout, {"ranking": ranking}


def ranked_table_of(ranking):
    """The same of a table."""
    return RankedTableRunner, RowsBesideLayout, {"ranking": ranking}


def ranked_windows_of(ranking):
    """The same of windows that end."""
    return RankedWindowsRunner, RowsBesideLayout, {"ranking": ranking}


def state_spec(keys, arguments, results, aggregates, **more):
    """Return a step that aggregates the rows of `orders` by those columns; `more` are further fields of it."""
    if (watermark := more.get("watermark")) is not None:
        more["window"] = watermark.window
    return table_step(keys, arguments, results, aggregates_of(aggregates), **more)


def task_command(partition, batch=1, span=None, directory=None, tries=1):
    """Return the command of a task for a batch; `span` is what it takes of its partition of `orders`."""
    return TaskCommand(
        task=TaskId(0, partition),
        batch=batch,
        committed=batch - 1,
        task_epoch=0,
        directory=directory,
        transaction=ProducerIdentity("app-thread-0-0", 1, 0),
        ranges={} if span is None else {TopicPartition("orders", partition): span},
        positions={},
        tries=tries,
    )
