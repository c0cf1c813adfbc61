"""Joins of a stream with a DataFrame that is collected periodically, on DataFrames.

The join is a step of ours, so the leg's plan has no exchange and can run in a resident job, unlike a broadcast join of
Spark's.
"""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import PySparkException
from pyspark.sql.types import StringType, StructField, StructType

from sparkrelay.catalyst.jvm import java, kind, nodes
from sparkrelay.errors import SerializationException, StreamsException, TopologyException
from sparkrelay.operators.collected_join.run import CollectedJoinRunner
from sparkrelay.records.keys import key_bytes
from sparkrelay.runtime.spark.cancelling import cancelled_when
from sparkrelay.runtime.spark.jobs import BATCH_POOL, JobFailed, collect_frame
from sparkrelay.topology.schemas import arrow_schema, lost_in_arrow

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from sparkrelay.runtime.spark.collected_frames import Collect, CollectedFrames, CollectedRows
    from sparkrelay.runtime.spark.executor_target import ExecutorTarget
    from sparkrelay.topology import Collected, Leg

_DAY_SECONDS: Final = 86_400


class CollectedJoins:
    """The collected joins of one stream thread, with the rows that its plans use."""

    def __init__(self, frames: CollectedFrames, target: ExecutorTarget, seconds: float) -> None:
        """Take what is needed to collect.

        Args:
            frames: the instance's frames.
            target: where DataFrames are collected the first time.
            seconds: timeout of that.
        """
        self._frames = frames
        self._target = target
        self._seconds = seconds
        self._rows: dict[Collected, CollectedRows] = {}

    def prepare(
        self,
        join: Collected,
        rows: StructType,
        needed: frozenset[str],
        carried: tuple[str, ...],
        *,
        tombstones_pass: bool,
    ) -> tuple[CollectedJoinRunner, StructType]:
        """Return the runner of a join and its output columns; collects the DataFrame if it is new.

        Args:
            join: the join.
            rows: the columns of its input.
            needed: which columns behind it anything reads.
            carried: hidden columns of the output.
            tombstones_pass: True upstream of a table of newest rows.

        Raises:
            TopologyException: the sides are incompatible, or the DataFrame cannot be collected.
            SparkRelayError: its evaluation failed.
        """
        where = f"{join.call_site}: join()"
        every = refresh_seconds(join)
        _check_uncached(join.frame, where)
        _check_keys(StructType([rows[name] for name in join.keys]), join.frame.schema, where)
        # The row of a deletion may have nulls in columns that have none otherwise.
        own = {field.name: field for field in rows}
        columns = [own.get(field.name, field) for field in join.columns if field.name in needed]
        if tombstones_pass:
            columns = [_nullable(field) if field.name in join.given else field for field in columns]
        output = StructType([*columns, *(rows[name] for name in carried)])
        arrow = _arrow(output, where)
        if join not in self._rows:
            self._frames.collect(join, join.frame, _arrow(join.frame.schema, where), every, self._collect)
            self._rows[join] = self._frames.of(join).rows
        spec = CollectedJoinRunner(
            frame=self._frames.of(join).number,
            version=self._rows[join].version,
            rows=self._rows[join].broadcast,
            keys=join.keys,
            given=join.given,
            how=join.how,
            tombstones_pass=tombstones_pass,
            output=arrow,
        )
        return spec, output

    def renew(self, legs: Iterable[Leg], collect: Collect) -> frozenset[Collected]:
        """Refresh outdated DataFrames of the legs; return the steps whose rows changed.

        Raises:
            SparkRelayError: see :meth:`CollectedFrame.refreshed`.
        """
        changed = set()
        for step in dict.fromkeys(step for leg in legs for step in leg.collected):
            rows = self._frames.of(step).refreshed(collect)
            if rows is not self._rows[step]:
                self._rows[step] = rows
                changed.add(step)
        return frozenset(changed)

    def _collect(self, frame: DataFrame, description: str) -> pa.Table:
        """Collect the first time, with a timeout, since no micro-batch would cancel it."""
        group, deadline = self._target.job_group("sparkrelay-collecting"), time.monotonic() + self._seconds
        cancel = functools.partial(self._target.cancel, group)
        try:
            with cancelled_when(lambda: time.monotonic() >= deadline, cancel):
                return collect_frame(self._target, frame, pool=BATCH_POOL, group=group, description=description)
        except JobFailed as error:
            if time.monotonic() < deadline:
                raise
            raise StreamsException(
                f"{description} took longer than {self._seconds:g} s (max.poll.interval.ms) and was cancelled: check "
                f"that its source responds, and that Spark has a free core. {error}"
            ) from error


def refresh_seconds(step: Collected) -> float:
    """Return the refresh interval of a join in seconds.

    Raises:
        TopologyException: it is not an interval of a fixed, positive length.
    """
    where = f"{step.call_site}: refresh={step.refresh!r} of join()"
    intervals = java("org.apache.spark.sql.catalyst.util.IntervalUtils")
    try:
        interval: Any = intervals.stringToInterval(
            java("org.apache.spark.unsafe.types.UTF8String").fromString(step.refresh)
        )
    except PySparkException as error:
        raise TopologyException(f'{where} is not an interval such as "10 minutes"') from error
    period, rest = interval.extractAsPeriod(), interval.extractAsDuration()
    if period.toTotalMonths():
        raise TopologyException(f'{where} has months, whose length varies; write it in days, such as "30 days"')
    seconds: float = period.getDays() * _DAY_SECONDS + rest.toMillis() / 1000
    if seconds <= 0:
        raise TopologyException(
            f'{where} must be positive, such as "10 minutes"; omit it to evaluate the DataFrame for each micro-batch'
        )
    return seconds


def _check_uncached(frame: DataFrame, where: str) -> None:
    """Reject cached DataFrames: their rows would never change."""
    plan = frame.select("*")._jdf.queryExecution().withCachedData()
    if any(kind(node) == "InMemoryRelation" for node in nodes(plan)):
        raise TopologyException(
            f"{where} with refresh= would see the same rows forever, since the DataFrame is cached: unpersist() it; "
            "SparkRelay keeps its rows"
        )


def _check_keys(own: StructType, frame: StructType, where: str) -> None:
    """Reject keys that cannot be compared as bytes."""
    for field, other in zip(own, frame, strict=False):
        name, its, theirs = field.name, field.dataType, other.dataType
        if its != theirs:
            raise TopologyException(
                f"{where}: {name!r} is {its.simpleString()} in the stream and {theirs.simpleString()} in the "
                "DataFrame; cast one of them, as refresh= compares values of one type"
            )
        plain = not isinstance(its, StructType) and _is_key(field)
        if not plain or (isinstance(its, StringType) and not its.isUTF8BinaryCollation()):
            raise TopologyException(
                f"{where} with refresh= compares keys as bytes, and {name!r} is {its.simpleString()}: join by "
                "UTF8_BINARY strings, binary, numbers, booleans, dates or timestamps, or omit refresh="
            )


def _is_key(field: StructField) -> bool:
    try:
        key_bytes([arrow_schema(StructType([field])).empty_table().column(0).combine_chunks()])
    except (PySparkException, SerializationException):
        return False
    return True


def _arrow(columns: StructType, where: str) -> pa.Schema:
    for field in columns:
        if (reason := lost_in_arrow(field)) is not None:
            raise TopologyException(
                f"{where} with refresh=: column {field.name!r} ({field.dataType.simpleString()}) cannot go through "
                f"Arrow: {reason}; drop or cast it before the join, or omit refresh="
            )
    return arrow_schema(columns)


def _nullable(field: StructField) -> StructField:
    return StructField(field.name, field.dataType, metadata=field.metadata)
