"""DataFrames collected on the driver from time to time, for joins with streams.

An instance has each of them once, for all stream threads and executors: the thread that finds its rows too old collects
them again, and the others use the old rows in the meantime. Python workers get the rows as a Spark broadcast variable,
which an executor fetches once. Refused: rows in the prepared plan, which is sent with each Spark task.
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

from py4j.protocol import Py4JError

from sparkrelay.errors import TopologyException
from sparkrelay.runtime.contract.arrow_stream import to_stream
from sparkrelay.runtime.spark.jobs import JobCancelled, JobFailed
from sparkrelay.runtime.spark.refresh_schedule import RefreshSchedule

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from pyspark import Broadcast
    from pyspark.sql import DataFrame

    from sparkrelay.topology import Collected

    #: Evaluates a DataFrame; the text describes the job.
    Collect = Callable[[DataFrame, str], pa.Table]

log = logging.getLogger(__name__)

#: Largest size of the rows in Arrow: each Python worker of the join holds them, and there are several per core.
MOST_BYTES: Final = 64 << 20

_numbers = itertools.count(1)
#: Unreferenced broadcast variables. The next collection destroys them: the garbage collector may find them at any
#: moment, even during another call to the JVM.
_unused: deque[Broadcast[bytes]] = deque()


class CollectedRows:
    """One version of a DataFrame's rows, destroyed when it is no longer referenced.

    ``version`` is a digest of the rows, ``broadcast`` the rows as an Arrow IPC stream.
    """

    def __init__(self, version: bytes, broadcast: Broadcast[bytes]) -> None:
        self.version = version
        self.broadcast = broadcast
        weakref.finalize(self, _unused.append, broadcast).atexit = False


class CollectedFrame:
    """A DataFrame with its last collected rows; ``number`` is unique in this driver. Thread-safe."""

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
            where: the line of the script with the join.
            frame: the columns of the key, then those to add.
            columns: the same in Arrow.
            every: largest age of the rows, seconds.
            clock: seconds since any moment.
            collect: evaluates the DataFrame.

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
        """The newest collected rows."""
        assert self._rows is not None, "the constructor collects them"
        return self._rows

    def refreshed(self, collect: Collect) -> CollectedRows:
        """Return the rows, collected again if they are too old; the same object if they have not changed.

        Raises:
            JobFailed: collecting has failed for too long.
            SparkRelayError: Spark is gone, or waiting tasks have to leave.
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
                    f"{text}; after failing for the whole refresh time, they are no longer used. Check that its source "
                    f"can be read, or give a longer refresh=. {error}"
                ) from error
            log.warning("%s; they are used until it has failed for the whole refresh time: %s", text, error)
        else:
            self._schedule.collected(now)

    def _collected(self, collect: Collect) -> CollectedRows:
        _destroy_unused()
        table = collect(self._frame, f"collecting the DataFrame of {self._where}")
        if table.nbytes > MOST_BYTES:
            raise TopologyException(
                f"{self._where}: the DataFrame of join() has {table.num_rows:,} rows of {table.nbytes / (1 << 20):.0f} "
                f"MiB, but refresh= collects at most {MOST_BYTES >> 20} MiB, since each Python worker holds them; "
                "select() and where() only what is needed, leave refresh= out to have Spark join with it, or write it "
                "to a topic and join with builder.table(topic)"
            )
        data = to_stream(table.cast(self._columns).combine_chunks())
        version = hashlib.sha256(data).digest()
        if self._rows is not None and self._rows.version == version:
            return self._rows
        return CollectedRows(version, self._frame.sparkSession.sparkContext.broadcast(data))


class CollectedFrames:
    """The collected DataFrames of an instance, by the step that joins with them; ``clock`` measures their age."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._frames: dict[Collected, CollectedFrame] = {}

    def of(self, step: Collected) -> CollectedFrame:
        """Return the DataFrame of a step, after :meth:`collect`."""
        return self._frames[step]

    def collect(self, step: Collected, frame: DataFrame, columns: pa.Schema, every: float, collect: Collect) -> None:
        """Collect the DataFrame of a step unless it was collected; raises as :class:`CollectedFrame`."""
        with self._lock:
            if step not in self._frames:
                self._frames[step] = CollectedFrame(str(step.call_site), frame, columns, every, self._clock, collect)


def _destroy_unused() -> None:
    while _unused:
        try:
            _unused.popleft().destroy()
        except (Py4JError, OSError, AttributeError) as error:
            # Its session is gone, and the variable with it.
            log.debug("a broadcast variable could not be destroyed: %s", error)
