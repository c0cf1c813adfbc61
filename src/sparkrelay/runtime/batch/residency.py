"""How a micro-batch runs: in a Spark job of its own, or in the resident job.

A job of its own uses every core and takes tens of milliseconds to start: right for a backlog. The resident job starts
at almost no cost and has one core per leg: right for new input without a backlog. ``Choice`` decides, ``Residency``
owns the resident job.
"""

from __future__ import annotations

import contextlib
import logging
import time
from typing import TYPE_CHECKING, Final

from sparkrelay.client.backoff import Backoff
from sparkrelay.errors import SparkRelayError
from sparkrelay.runtime.spark.jobs import JobCancelled, JobFailed
from sparkrelay.runtime.spark.resident_job import ResidentJob

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from sparkrelay.runtime.compile.prepared_legs import PreparedLegs
    from sparkrelay.runtime.spark.jobs import Jobs

log = logging.getLogger(__name__)

#: Up to so many records a micro-batch is small, above the other number it is a backlog. In between, and until a few
#: in a row are small, nothing changes.
_SMALL: Final = 5_000
_BACKLOG: Final = 50_000
_IN_A_ROW: Final = 3
#: The micro-batch waits for the start, which takes tenths of a second, or seconds on an overloaded machine.
_OPEN_SECONDS: Final = 20.0
#: An idle job is stopped: it holds slots, and its workers hold stores open.
_IDLE_SECONDS: Final = 60.0
#: After this many consecutive failures, or one failed start, the resident job is not used for a while.
_FAILURES: Final = 2
_FIRST_PAUSE: Final = 5.0
_LONGEST_PAUSE: Final = 300.0
_FIRST_PAUSE_IN_VAIN: Final = 60.0
_LONGEST_PAUSE_IN_VAIN: Final = 3600.0


class Choice:
    """Decides by the number of records. Pure; it is given the time."""

    def __init__(self) -> None:
        self._small = 0
        self._failures = 0
        self._pauses = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, jitter=0)
        self._pauses_in_vain = Backoff(_FIRST_PAUSE_IN_VAIN, _LONGEST_PAUSE_IN_VAIN, jitter=0)
        self._not_before = 0.0

    def resident(self, records: int, now: float, *, open_: bool) -> bool:
        """Return whether a micro-batch of that many records should use the resident job.

        ``now`` is in monotonic seconds; ``open_`` is True if the job exists.
        """
        self._small = self._small + 1 if records <= _SMALL else 0
        if now < self._not_before:
            return False
        return records <= _BACKLOG if open_ else self._small >= _IN_A_ROW

    def why_not(self, records: int, now: float) -> str:
        """Return why the last answer was no, in words."""
        if now < self._not_before:
            return f"the resident job has failed, and is left alone for {self._not_before - now:.0f} s"
        return f"{records:,} records" if records > _SMALL else "the first small ones behind a backlog"

    def failed(self, now: float) -> None:
        """Record that the resident job failed."""
        self._failures += 1
        self._small = 0
        if self._failures >= _FAILURES:
            self._not_before = now + self._pauses.next()

    def in_vain(self, now: float) -> None:
        """Record that the resident job could not start: each attempt delays a micro-batch."""
        self._small = 0
        self._not_before = now + self._pauses_in_vain.next()

    def passed(self) -> None:
        """Record that a micro-batch passed through the resident job."""
        self._failures = 0
        self._pauses.reset()
        self._pauses_in_vain.reset()


class Residency:
    """The resident job of one stream thread, if any. The batch thread owns it."""

    def __init__(self, jobs: Jobs, *, over: Callable[[], bool], clock: Callable[[], float] = time.monotonic) -> None:
        """Begin without a job; ``over()`` returns whether the thread is to end, ``clock()`` seconds."""
        self._jobs = jobs
        self._over = over
        self._clock = clock
        self._choice = Choice()
        self._job: ResidentJob | None = None
        self._used_at = 0.0
        #: The reasons against a resident job that were last logged.
        self._refused: object = None
        #: Why the last micro-batch had a Spark job of its own; empty if it had not.
        self.why_bulk = ""

    def job_for(self, plans: PreparedLegs, legs: Collection[str], records: int) -> ResidentJob | None:
        """Return the job for a micro-batch of those legs; None if it gets one of its own."""
        if self._job is not None and self._job.over:
            self.close()
        wanted = self._choice.resident(records, self._clock(), open_=self._job is not None)
        if self._job is not None and not (wanted and self._job.legs.issuperset(legs)):
            self.close()
        self.why_bulk = "" if wanted else self._choice.why_not(records, self._clock())
        if wanted and self._job is None:
            self.why_bulk = self._open(plans, legs)
        self._used_at = self._clock()
        return self._job

    def rest(self) -> None:
        """Record that no micro-batch is running; stop an idle job."""
        if self._job is not None and self._clock() - self._used_at > _IDLE_SECONDS:
            self.close()

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Record whether a micro-batch passes through the resident job; stop the job if it fails."""
        try:
            yield
        except BaseException as error:
            if isinstance(error, JobFailed) and not isinstance(error, JobCancelled):
                self._choice.failed(self._clock())
            self.close(cancel=True)
            raise
        self._choice.passed()

    def close(self, *, cancel: bool = False) -> None:
        """Stop the resident job, if any."""
        if self._job is None:
            return
        job, self._job = self._job, None
        job.close(cancel=cancel)
        self._jobs.target.free_slots(len(job.legs))

    def _open(self, plans: PreparedLegs, legs: Collection[str]) -> str:
        """Start a resident job; return why there is none, or an empty text."""
        found = plans.resident()
        if found.refused and found.refused != self._refused:
            reasons = "; ".join(f"leg {leg}: {reason}" for leg, reason in found.refused.items())
            log.info("these run a Spark job for each micro-batch, however small: %s", reasons)
            self._refused = found.refused
        if refused := sorted(found.refused.keys() & set(legs)):
            return f"leg {refused[0]}: {found.refused[refused[0]]}"
        if found.frame is None or not set(legs).issubset(found.steps):
            return "a leg lets nothing through"
        if not self._jobs.target.hold_slots(len(found.steps)):
            return f"no Spark slot is free for a resident job of {len(found.steps)}"
        job = ResidentJob(self._jobs, found.frame, found.steps)
        try:
            job.open(_OPEN_SECONDS, self._over)
        except SparkRelayError as error:
            self._jobs.target.free_slots(len(found.steps))
            self._choice.in_vain(self._clock())
            log.warning("micro-batches get Spark jobs of their own for now: %s", error)
            return "a resident job could not begin"
        self._job = job
        return ""
