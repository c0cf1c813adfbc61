"""DataFrames that are collected on the driver now and then, for joins of streams with them.

An instance has each of them once, whatever stream threads and executors it has: who finds its rows too old collects
them, and the others go on with what there is until that is done. Rows travel to the Python workers as a broadcast
variable of Spark's, which an executor fetches once. Refused: in the prepared plan, which each Spark task is sent.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from py4j.protocol import Py4JError

from sparkrelay.errors import TopologyException
from sparkrelay.runtime.spark.jobs import JobCancelled, JobFailed
from sparkrelay.runtime.spark.refresh_schedule import RefreshSchedule

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark import Broadcast
    from pyspark.sql import DataFrame

    from sparkrelay.topology import Step

    #: Evaluates a DataFrame; the text says what for.
    Collect = Callable[[DataFrame, str], pa.Table]

__all__ = ["MOST_BYTES", "CollectedFrame", "CollectedFrames", "CollectedRows"]

log = logging.getLogger(__name__)

#: Of a DataFrame's rows in Arrow. Each Python worker that joins with them holds them, and there are several a core.
MOST_BYTES: Final = 64 << 20

_numbers = itertools.count(1)
#: Broadcast variables that no plan has any more. They are destroyed with the next collection: the garbage collector may
#: find them at any moment, such as in the middle of another call to the JVM.
_unused: deque[Broadcast[bytes]] = deque()


class CollectedRows:
    """One version of a DataFrame's rows; it is destroyed once nobody has it any more.

    Attributes:
        version: digest of the rows.
        broadcast: them, as an Arrow IPC stream.
    """

    def __init__(self, version: bytes, broadcast: Broadcast[bytes]) -> None:
        self.version = version
        self.broadcast = broadcast
        weakref.finalize(self, _unused.append, broadcast).atexit = False


class CollectedFrame:
    """A DataFrame, and its rows as they were when it was last collected. Any driver thread may call it.

    Attributes:
        number: another one for each in this driver.
    """

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        where: str,
        frame: DataFrame,
        columns: pa.Schema,
        every: float,
        clock: Callable[[], float],
        collect: Collect,
    ) -> None:
        """Collect it for the first time.

        Args:
            where: the line that wrote the join.
            frame: the columns of the key, then those that it gives.
            columns: the same in Arrow.
            every: seconds that rows may be old.
            clock: seconds, from anywhere.
            collect: evaluates it.

        Raises:
            TopologyException: it is too large.
            SparkRelayError: it cannot be evaluated.
        """
        self.number = next(_numbers)
        self._where = where
        self._frame = frame
        self._columns = columns
        self._clock = clock
        self._collecting = threading.Lock()
        self._schedule = RefreshSchedule(every, clock())
        self._rows: CollectedRows | None = None
        self._rows = self._collected(collect)

    @property
    def rows(self) -> CollectedRows:
        """The newest rows there are."""
        assert self._rows is not None, "the constructor collects them"
        return self._rows

    def refreshed(self, collect: Collect) -> CollectedRows:
        """Return the rows, collected anew if they are too old; the same object if they have not changed.

        Raises:
            JobFailed: they could not be collected for too long.
            SparkRelayError: Spark is gone, or tasks have to leave that wait for it.
        """
        if not self._collecting.acquire(blocking=False):
            return self.rows
        try:
            now = self._clock()
            if self._schedule.due(now):
                self._refresh(now, collect)
        finally:
            self._collecting.release()
        return self.rows

    def _refresh(self, now: float, collect: Collect) -> None:
        try:
            self._rows = self._collected(collect)
        except JobCancelled:
            raise
        except (JobFailed, TopologyException) as error:
            over = self._schedule.failed(self._clock())
            text = (
                f"{self._where}: the DataFrame of join() could not be collected again, and its rows are "
                f"{self._schedule.age(now):.0f} s old (refresh: {self._schedule.every:g} s)"
            )
            if over:
                raise JobFailed(
                    f"{text}; it has failed for as long as that, so they are used no more. See that its source can be "
                    f"read, or give a longer refresh=. {error}"
                ) from error
            log.warning("%s; they are used until it works again, or has failed for as long as that: %s", text, error)
        else:
            self._schedule.collected(now)

    def _collected(self, collect: Collect) -> CollectedRows:
        _destroy_unused()
        table = collect(self._frame, f"collecting the DataFrame of {self._where}")
        if table.nbytes > MOST_BYTES:
            raise TopologyException(
                f"{self._where}: the DataFrame of join() has {table.num_rows:,} rows of {table.nbytes / (1 << 20):.0f} "
                f"MiB, and {MOST_BYTES >> 20} MiB at most are collected for refresh=, since each Python worker holds "
                "them; select() the columns and where() the rows that are needed, leave refresh= out to have Spark "
                "join with it, or write it to a topic and look into builder.table(topic)"
            )
        data = _as_stream(table.cast(self._columns).combine_chunks())
        version = hashlib.sha256(data).digest()
        if self._rows is not None and self._rows.version == version:
            return self._rows
        return CollectedRows(version, self._frame.sparkSession.sparkContext.broadcast(data))


class CollectedFrames:
    """The DataFrames that an instance has collected, by the step that joins with them.

    Args:
        clock: seconds, from anywhere; by it they get old.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._frames: dict[Step, CollectedFrame] = {}

    def of(self, step: Step) -> CollectedFrame:
        """Return the DataFrame of a step, which :meth:`collect` was called for."""
        return self._frames[step]

    def collect(self, step: Step, frame: DataFrame, columns: pa.Schema, every: float, collect: Collect) -> None:
        """Collect the DataFrame of a step, unless that was done; raises what :class:`CollectedFrame` does."""
        with self._lock:
            if step not in self._frames:
                self._frames[step] = CollectedFrame(str(step.call_site), frame, columns, every, self._clock, collect)


def _as_stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _destroy_unused() -> None:
    while _unused:
        try:
            _unused.popleft().destroy()
        except (Py4JError, OSError, AttributeError) as error:
            # The session that it was made in is gone, and so is what it held.
            log.debug("a broadcast variable could not be destroyed: %s", error)
