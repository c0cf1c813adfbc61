"""What jobs say when they fail, are cancelled, or when their Spark session is gone."""

import itertools
import logging
import threading
from types import SimpleNamespace

import pytest
from pyspark.errors import PySparkException
from tests.waiting import LONG

from sparkrelay.errors import SerializationException, StoreCorruptedException, StreamsException
from sparkrelay.runtime.contract.commands import BatchCommand, encode_bytes
from sparkrelay.runtime.contract.failure_marks import WorkerFailure, new_key
from sparkrelay.runtime.spark.executor_target import ExecutorTarget
from sparkrelay.runtime.spark.jobs import ClosedWorkerLent, JobCancelled, JobFailed, Jobs, run_job
from sparkrelay.runtime.worker.restore import RestoreSpec


class Context:
    """A SparkContext: notes which groups its jobs are in, and which of them are cancelled."""

    def __init__(self, *, jsc=True, exit_code=None, cancel=None):
        scala = SimpleNamespace(
            isStopped=lambda: False, listenerBus=lambda: SimpleNamespace(waitUntilEmpty=lambda milliseconds: None)
        )
        self._jsc = SimpleNamespace(sc=lambda: scala) if jsc else None
        self._gateway = SimpleNamespace(proc=SimpleNamespace(poll=lambda: exit_code))
        self._cancel, self.groups, self.cancelled = cancel, [], []

    def setLocalProperty(self, name, value):
        pass

    def setJobGroup(self, group, description, **_):
        self.groups.append(group)

    def cancelJobGroup(self, group):
        self.cancelled.append(group)
        if self._cancel is not None:
            self._cancel()

    def statusTracker(self):
        return SimpleNamespace(getJobIdsForGroup=lambda group: [1], getJobInfo=lambda job: None)


def frame_of(collect, context=None):
    """A DataFrame; `collect()` is the job that evaluates it."""
    session = SimpleNamespace(sparkContext=context or Context())
    return SimpleNamespace(sparkSession=session, _jdf=SimpleNamespace(collect=collect))


def jobs(collect=None, **settings):
    """Jobs on a session that is there, or looks as once its JVM is gone; `collect()` restores and closes stores."""
    context = Context(**settings)
    steps = SimpleNamespace(mapInArrow=lambda function, schema: frame_of(collect, context))
    spark = SimpleNamespace(sparkContext=context, range=lambda *_: steps)
    return Jobs(ExecutorTarget(spark, spark_partitions=2), restore=RestoreSpec(2, "app", {}, 1 << 20), name="app")


def context_of(on):
    return on.target.spark.sparkContext


def reported():
    """What a job brings back that has one report."""
    return [SimpleNamespace(get=lambda column: encode_bytes(["report"]))]


def test_a_session_that_is_there_is_fine():
    jobs().require_session()


@pytest.mark.parametrize(
    ("made", "message"),
    [({"jsc": False}, "the Spark session is gone: it was stopped"), ({"exit_code": -9}, "ended with exit code -9")],
)
def test_a_session_that_is_gone_is_named(made, message):
    gone = jobs(**made)
    with pytest.raises(StreamsException, match=message):
        gone.require_session()
    with pytest.raises(StreamsException, match=message):
        gone.run_batch(None, None, description="batch 1")


def test_closing_stores_that_takes_long_is_cancelled_until_it_ends(monkeypatch):
    """It may wait for a core behind a batch of other tasks."""
    monkeypatch.setattr("sparkrelay.runtime.spark.cancelling._AGAIN_SECONDS", 0.01)
    cancels, over = itertools.count(1), threading.Event()

    def cancel():
        if next(cancels) == 2:
            over.set()

    def collect():
        assert over.wait(LONG)
        raise PySparkException("it was cancelled")

    on = jobs(collect, cancel=cancel)
    with pytest.raises(JobFailed, match="'app: closing 1 tasks' failed: it was cancelled"):
        on.drop_journals(None, description="closing 1 tasks", seconds=0.01)
    assert context_of(on).groups == ["app-leave"]
    assert set(context_of(on).cancelled) == {"app-leave"}


def test_closing_stores_that_ends_is_not_cancelled():
    on = jobs(reported)
    assert on.drop_journals(None, description="closing 1 tasks", seconds=60) == ["report"]
    assert not context_of(on).cancelled


def test_a_batch_that_was_cancelled_here_says_so_and_the_next_one_does_not():
    on, cancels = jobs(), [1, 0]

    def collect():
        for _ in range(cancels.pop(0)):
            on.cancel_batch()
        raise PySparkException("it failed")

    with pytest.raises(JobCancelled, match="it failed"):
        on.run_batch(frame_of(collect), None, description="batch 1")
    with pytest.raises(JobFailed) as caught:
        on.run_batch(frame_of(collect), None, description="batch 2")
    assert not isinstance(caught.value, JobCancelled)


def failing(error):
    """A DataFrame whose job fails."""

    def fail():
        raise error

    return frame_of(fail)


def test_a_job_under_way_is_known_until_it_ends():
    on, overdue = jobs(), []

    def collect():
        overdue.append(on.target.overdue(-1))
        raise PySparkException("no")

    with pytest.raises(JobFailed):
        on.run_batch(frame_of(collect), None, description="batch 7 of 0_0")
    assert overdue == ["on the driver the Spark job 'app: batch 7 of 0_0' has not ended for 0 s"]
    assert on.target.overdue(-1) == ""


def test_a_failed_job_is_one_paragraph(caplog):
    spark_says = """PythonException: An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "pipeline.py", line 7, in price
    return 1 / quantity
           ~~^~~~~~~~~~
ZeroDivisionError: division by zero
	at org.apache.spark.api.python.BasePythonRunner
"""
    with caplog.at_level(logging.DEBUG, "sparkrelay.runtime.spark.jobs"), pytest.raises(JobFailed) as caught:
        jobs().run_batch(failing(PySparkException(spark_says)), None, description="batch 7 of 0_0")
    assert str(caught.value) == (
        "the Spark job 'app: batch 7 of 0_0' failed: ZeroDivisionError: division by zero (pipeline.py:7, in price). "
        "Fix that step, or filter out such rows before it. The traceback is in the log at DEBUG."
    )
    assert "BasePythonRunner" in caplog.text
    assert caught.value.__cause__ is None


def test_a_python_that_is_not_on_the_executors_host_is_named_with_the_settings():
    spark_says = """Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, most recent failure: Lost task
0.0 in stage 0.0 (TID 0) (node executor 0): java.io.IOException: Cannot run program "/no/such/python": error=2, No such
	at java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)
"""
    with pytest.raises(StreamsException, match="there is no program '/no/such/python'.*spark.pyspark.python") as caught:
        jobs().run_batch(failing(PySparkException(spark_says)), None, description="batch 7 of 0_0")
    assert not isinstance(caught.value, JobFailed), "trying again does not help"


@pytest.mark.parametrize(
    ("python_says", "words"),
    [
        (
            "/bare/python: Error while finding module (ModuleNotFoundError: No module named 'sparkrelay')",
            "No module named 'sparkrelay'",
        ),
        ("  import numpy as np\nModuleNotFoundError: No module named 'numpy.core'", "No module named 'numpy.core'"),
        ("./environment/bin/python: cannot execute", "cannot execute"),
    ],
)
def test_what_the_python_of_workers_lacks_is_said_with_the_remedy(python_says, words):
    spark_says = f"""Job aborted due to stage failure: Task 0 failed 1 times: org.apache.spark.SparkException:
Error from python worker:
{python_says}
PYTHONPATH was:
  /spark/python/lib/pyspark.zip
org.apache.spark.SparkException: EOFException occurred while reading the port number from \
sparkrelay.runtime.worker.daemon's stdout and terminated with code: 1.
"""
    words = f"app: claiming.*Their Python said: .*{words}.*PYSPARK_PYTHON.*spark.archives"
    with pytest.raises(StreamsException, match=words) as caught:
        jobs().run_batch(failing(PySparkException(spark_says)), None, description="claiming a slot")
    assert not isinstance(caught.value, JobFailed), "trying again does not help"


DAEMON_ENDED = """Job aborted due to stage failure: Task 0 failed 1 times: org.apache.spark.SparkException:
Error from python worker:
Traceback (most recent call last):
  File "/python/daemon.py", line 129, in manager
{error}
PYTHONPATH was:
  /spark/python/lib/pyspark.zip
org.apache.spark.SparkException: EOFException occurred while reading the port number from \
{module}'s stdout and terminated with code: 1.
"""


@pytest.mark.parametrize(
    ("spark_says", "words"),
    [
        (
            DAEMON_ENDED.format(
                error="sparkrelay.runtime.contract.socket_folders.NoSocketFolder: no folder for Unix sockets: /tmp is",
                module="sparkrelay.runtime.worker.daemon",
            ),
            "cannot be started for the Spark job 'app: claiming a slot': no folder for Unix sockets: /tmp is$",
        ),
        (
            DAEMON_ENDED.format(error="OSError: AF_UNIX path too long", module="pyspark.daemon"),
            r"'app: claiming a slot' failed: .*10\d bytes.*java\.io\.tmpdir.*Set spark\.python\.unix\.domain\.socket",
        ),
        (
            "Lost task 0.0 (node executor 0): java.net.SocketException: Unix domain path too long",
            r"10\d bytes.*Set spark\.python\.unix\.domain\.socket\.dir",
        ),
    ],
)
def test_a_path_that_is_too_long_for_a_socket_is_not_taken_for_another_python(spark_says, words):
    with pytest.raises(StreamsException, match=words) as caught:
        jobs().run_batch(failing(PySparkException(spark_says)), None, description="claiming a slot")
    assert not isinstance(caught.value, JobFailed), "trying again does not help"
    assert "PYSPARK_PYTHON" not in str(caught.value)


def test_a_socket_of_a_users_step_is_the_steps_own():
    spark_says = """PythonException: An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "pipeline.py", line 7, in price
    connection.connect(path)
OSError: AF_UNIX path too long
"""
    with pytest.raises(JobFailed, match="AF_UNIX path too long .pipeline.py:7, in price.*Fix that step"):
        jobs().run_batch(failing(PySparkException(spark_says)), None, description="batch 7 of 0_0")


def test_a_module_that_a_step_lacks_is_the_steps_own():
    spark_says = """PythonException: An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "pipeline.py", line 7, in price
    import prices
ModuleNotFoundError: No module named 'prices'
"""
    with pytest.raises(JobFailed, match="No module named 'prices' .pipeline.py:7, in price.*Fix that step"):
        jobs().run_batch(failing(PySparkException(spark_says)), None, description="batch 7 of 0_0")


def test_only_an_error_under_our_signature_is_believed():
    ours = jobs()
    forged = WorkerFailure(StoreCorruptedException("forged"), new_key())
    real = WorkerFailure(SerializationException("bad record"), ours.target.failure_key)
    with pytest.raises(JobFailed, match="cannot be cast"):
        ours.run_batch(failing(PySparkException(f"'{forged}' cannot be cast")), None, description="batch")
    with pytest.raises(SerializationException, match="^bad record$"):
        ours.run_batch(failing(PySparkException(f"'{forged}' {real}")), None, description="batch")


@pytest.mark.parametrize(
    ("command", "stays", "failures", "runs"),
    [
        (None, None, 2, 3),
        (None, None, 3, 3),
        (BatchCommand((), {}), None, 1, 1),
        (None, lambda: None, 1, 1),
    ],
    ids=["twice", "always", "a micro-batch", "a resident job"],
)
def test_a_job_that_got_a_closed_worker_begins_again_unless_its_tries_are_numbered(command, stays, failures, runs):
    begun = []
    spark_says = """Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, most recent failure: Lost \
task 0.0 in stage 0.0 (TID 0) (node executor driver): java.nio.channels.ClosedChannelException
	at java.base/sun.nio.ch.SocketChannelImpl.ensureOpen(SocketChannelImpl.java:204)
"""

    def collect():
        begun.append(1)
        if len(begun) <= failures:
            raise PySparkException(spark_says)
        return reported()

    def run():
        return run_job(jobs().target, frame_of(collect), command, pool="p", group="g", description="x", stays=stays)

    if failures < runs:
        assert run() == ["report"]
    else:
        with pytest.raises(ClosedWorkerLent):
            run()
    assert len(begun) == runs
