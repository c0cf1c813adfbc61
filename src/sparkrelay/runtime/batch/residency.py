"""Which of the two ways a micro-batch takes: a Spark job of its own, or one that stays.

A job of its own uses every core and costs tens of milliseconds to start: right while there is a backlog. One that stays
costs next to nothing to start and has one core a leg: right for what arrives while nothing waits. ``Choice`` decides,
``Residency`` keeps the job that stays.
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

__all__ = ["Choice", "Residency"]

log = logging.getLogger(__name__)

#: Records of a micro-batch up to which it is small, and beyond which it is a backlog. In between all stays as it is,
#: and so it does until a few in a row are small.
_SMALL: Final = 5_000
_BACKLOG: Final = 50_000
_IN_A_ROW: Final = 3
#: Its micro-batch waits meanwhile; a start takes some tenths of a second, and several on a machine that is overloaded.
_OPEN_SECONDS: Final = 20.0
#: Without a micro-batch for so long it is ended: it holds slots, and its workers hold stores open.
_IDLE_SECONDS: Final = 60.0
#: Failures of the job that stays in a row, or vain tries to begin one, after which it is left alone, and for how long.
_FAILURES: Final = 2
_FIRST_PAUSE: Final = 5.0
_LONGEST_PAUSE: Final = 300.0
_FIRST_PAUSE_IN_VAIN: Final = 60.0
_LONGEST_PAUSE_IN_VAIN: Final = 3600.0


class Choice:
    """Decides by what is waiting. Pure: it is told the time."""

    def __init__(self) -> None:
        self._small = 0
        self._failures = 0
        self._pauses = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, jitter=0)
        self._pauses_in_vain = Backoff(_FIRST_PAUSE_IN_VAIN, _LONGEST_PAUSE_IN_VAIN, jitter=0)
        self._not_before = 0.0

    def resident(self, records: int, now: float, *, open_: bool) -> bool:
        """Return whether a micro-batch of so many records should pass through a job that stays.

        Args:
            records: that it has.
            now: monotonic seconds.
            open_: True if there is such a job.
        """
        self._small = self._small + 1 if records <= _SMALL else 0
        if now < self._not_before:
            return False
        return records <= _BACKLOG if open_ else self._small >= _IN_A_ROW

    def why_not(self, records: int, now: float) -> str:
        """Return in words why the last answer was no."""
        if now < self._not_before:
            return f"the job that stays has failed, and is left alone for {self._not_before - now:.0f} s"
        return f"{records:,} records" if records > _SMALL else "the first small ones behind a backlog"

    def failed(self, now: float) -> None:
        """Note that the job that stays has failed."""
        self._failures += 1
        self._small = 0
        if self._failures >= _FAILURES:
            self._not_before = now + self._pauses.next()

    def in_vain(self, now: float) -> None:
        """Note that a job that stays could not be begun: each try holds a micro-batch up."""
        self._small = 0
        self._not_before = now + self._pauses_in_vain.next()

    def passed(self) -> None:
        """Note that a micro-batch has passed through the job that stays."""
        self._failures = 0
        self._pauses.reset()
        self._pauses_in_vain.reset()


class Residency:
    """The job that stays of one stream thread, while there is one. The batch thread owns it."""

    def __init__(self, jobs: Jobs, *, over: Callable[[], bool], clock: Callable[[], float] = time.monotonic) -> None:
        """Begin without one.

        Args:
            jobs: the stream thread's.
            over: says whether the thread is to end.
            clock: seconds, from anywhere.
        """
        self._jobs = jobs
        self._over = over
        self._clock = clock
        self._choice = Choice()
        self._job: ResidentJob | None = None
        self._used_at = 0.0
        #: Why legs cannot stay, as it was last logged.
        self._refused: object = None
        #: Why the newest micro-batch has a Spark job of its own; empty if it has none.
        self.why_bulk = ""

    def job_for(self, plans: PreparedLegs, legs: Collection[str], records: int) -> ResidentJob | None:
        """Return the job that a micro-batch of those legs passes through; None if it gets one of its own."""
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
        """Note that there is no micro-batch just now."""
        if self._job is not None and self._clock() - self._used_at > _IDLE_SECONDS:
            self.close()

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Learn whether a micro-batch passes through the job that stays; one that has failed is ended."""
        try:
            yield
        except BaseException as error:
            if isinstance(error, JobFailed) and not isinstance(error, JobCancelled):
                self._choice.failed(self._clock())
            self.close(cancel=True)
            raise
        self._choice.passed()

    def close(self, *, cancel: bool = False) -> None:
        """End the job that stays, if there is one."""
        if self._job is None:
            return
        job, self._job = self._job, None
        job.close(cancel=cancel)
        self._jobs.target.free_slots(len(job.legs))

    def _open(self, plans: PreparedLegs, legs: Collection[str]) -> str:
        """Begin a job that stays; return why there is none, or nothing."""
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
            return f"no Spark slot is free for a job of {len(found.steps)} that stays"
        job = ResidentJob(self._jobs, found.frame, found.steps)
        try:
            job.open(_OPEN_SECONDS, self._over)
        except SparkRelayError as error:
            self._jobs.target.free_slots(len(found.steps))
            self._choice.in_vain(self._clock())
            log.warning("micro-batches get Spark jobs of their own for now: %s", error)
            return "a job that stays could not begin"
        self._job = job
        return ""
