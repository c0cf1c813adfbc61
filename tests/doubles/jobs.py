"""A stream thread's Spark jobs, without Spark."""

import threading

from sparkrelay.errors import SerializationException, StoreCorruptedException, StoreOutOfStepException
from sparkrelay.runtime.contract.commands import LegReport, RestoreReport
from sparkrelay.runtime.spark.jobs import JobFailed

#: What a worker reports of one task; any other error is the whole job's.
_REPORTED = StoreCorruptedException | StoreOutOfStepException | SerializationException


class Jobs:
    """Ends every job well and at once, but for what the test says.

    Attributes:
        answers: what becomes of one slice of restoring after another: None, an error that all its tasks report, or one
            that the job raises.
        copied: changelog partition -> offset where every slice ends; None for the end that it is given.
        may_end: released once for each slice that may end; None if all may.
        deaf: how many cancels come to nothing, as where they come before the job.
        unclosed: the error with which every store is closed.
        raised: the error of every micro-batch.
        reported: the error that every micro-batch has in its first task.
        silent: the task of which no micro-batch reports.
        legs: subtopology -> its leg, where that is not "leg".
    """

    def __init__(self, *answers, spark_partitions=1, copied=None, raised=None, reported=None, silent=None):
        self.spark_partitions, self.answers, self.copied = spark_partitions, list(answers), copied
        self.raised, self.reported, self.silent = raised, reported, silent
        self.slice_began, self.may_end = threading.Semaphore(0), None
        self.commands, self.seconds = [], []
        self.deaf = self.cancels = 0
        self.cancelled, self.unclosed = False, None
        self.prewarmed, self.prewarms = None, 0
        self.learned, self.legs = [], {}

    def learn_schemas(self, numbers):
        self.learned.append(numbers)

    def prewarm(self, legs, command, due):
        self.prewarmed, self.due = command, due()
        self.prewarms += 1

    def collect(self, frame, description):
        raise AssertionError("no test here has a DataFrame")

    def run_batch(self, frame, command, *, description):
        self.command = command
        if self.raised is not None:
            raise self.raised
        tasks = [task for share in command.spark_partitions for task in share]
        first = min(task.task for task in tasks)
        return [
            LegReport(
                self.legs.get(task.task.subtopology, "leg"),
                task.task,
                task.batch,
                error=self.reported if task.task == first else None,
            )
            for task in tasks
            if task.task != self.silent
        ]

    def restore(self, slice_, *, description):
        (tasks,) = slice_.spark_partitions
        self.commands.append(tasks)
        self.seconds.append(slice_.seconds)
        self.slice_began.release()
        if self.may_end is not None:
            assert self.may_end.acquire(timeout=60)
        if self.cancelled:
            self.cancelled = False
            raise JobFailed("cancelled")
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception) and not isinstance(answer, _REPORTED):
            raise answer
        return [self._report(task, answer) for task in tasks]

    def _report(self, task, error):
        ends = self.copied or {store.changelog: store.end for store in task.stores}
        return RestoreReport(task.task, {}, 0, ends, task_epoch=task.task_epoch, error=error)

    def drop_journals(self, slice_, *, description, seconds):
        return [
            RestoreReport(task.task, {}, 0, {}, error=self.unclosed)
            for share in slice_.spark_partitions
            for task in share
        ]

    def cancel_restore(self):
        self.cancels += 1
        if self.cancels > self.deaf:
            self.cancelled = True
            self.may_end.release()
