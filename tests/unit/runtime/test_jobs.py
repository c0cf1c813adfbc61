"""What jobs say when they fail, are cancelled, or when their Spark session is gone."""

import threading
from types import SimpleNamespace

import pytest
from pyspark.errors import PySparkException

from sparkrelay.errors import StreamsException
from sparkrelay.runtime.jobs import JobCancelled, JobFailed, Jobs
from sparkrelay.runtime.place import Place
from sparkrelay.runtime.worker.replay import ReplaySpec


def jobs(*, jsc=True, exit_code=None):
    """Jobs on a double of a session: what SparkContext looks like once its JVM is gone."""
    jvm = SimpleNamespace(poll=lambda: exit_code)
    java = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: False))
    context = SimpleNamespace(_jsc=java if jsc else None, _gateway=SimpleNamespace(proc=jvm))
    frame = SimpleNamespace(mapInArrow=lambda function, schema: None)
    spark = SimpleNamespace(sparkContext=context, range=lambda *_: frame)
    return Jobs(Place(spark, slots=2), replay=ReplaySpec(2, "app", {}, 1 << 20), name="app")


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


def test_a_farewell_that_takes_long_is_cancelled_until_it_ends(monkeypatch):
    """It may wait for a core behind a batch of other tasks."""
    cancelled, over = [], threading.Event()

    def cancel(place, group):
        cancelled.append(group)
        if len(cancelled) == 2:
            over.set()

    def run_job(place, frame, order, *, group, **_):
        assert over.wait(60)
        raise JobFailed(f"{group} was cancelled")

    monkeypatch.setattr(Place, "cancel", cancel)
    monkeypatch.setattr("sparkrelay.runtime.jobs.run_job", run_job)
    monkeypatch.setattr("sparkrelay.runtime.cancelling._AGAIN_SECONDS", 0.01)
    with pytest.raises(JobFailed, match="app-farewell was cancelled"):
        jobs().settle(None, description="closing 1 tasks", seconds=0.01)
    assert set(cancelled) == {"app-farewell"}


def test_a_farewell_that_ends_is_not_cancelled(monkeypatch):
    monkeypatch.setattr("sparkrelay.runtime.jobs.run_job", lambda *_, **__: ["report"])
    assert jobs().settle(None, description="closing 1 tasks", seconds=60) == ["report"]


def test_a_batch_that_was_cancelled_here_says_so_and_the_next_one_does_not(monkeypatch):
    on, cancels = jobs(), [1, 0]

    def run_job(*_, **__):
        for _ in range(cancels.pop(0)):
            on.cancel_batch()
        raise JobFailed("it failed")

    monkeypatch.setattr(Place, "cancel", lambda place, group: None)
    monkeypatch.setattr("sparkrelay.runtime.jobs.run_job", run_job)
    with pytest.raises(JobCancelled, match="it failed"):
        on.run_batch(None, None, description="batch 1")
    with pytest.raises(JobFailed) as caught:
        on.run_batch(None, None, description="batch 2")
    assert not isinstance(caught.value, JobCancelled)


def test_a_failed_job_is_named_and_its_error_comes_before_its_traceback(monkeypatch):
    spark_says = """PythonException: An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "pipeline.py", line 7, in price
    return 1 / quantity
ZeroDivisionError: division by zero
	at org.apache.spark.api.python.BasePythonRunner
"""

    def nothing(*_, **__):
        pass

    def fail():
        raise PySparkException(spark_says)

    monkeypatch.setattr(Place, "mark_jobs", lambda _: None)
    monkeypatch.setattr("sparkrelay.runtime.jobs.encode", lambda _: "")
    on = jobs()
    frame = SimpleNamespace(
        sparkSession=SimpleNamespace(sparkContext=SimpleNamespace(setLocalProperty=nothing, setJobGroup=nothing)),
        _jdf=SimpleNamespace(collect=fail),
    )
    with pytest.raises(JobFailed) as caught:
        on.run_batch(frame, None, description="batch 7 of 0_0")
    first, second, *_, last = str(caught.value).splitlines()
    assert first == "the Spark job 'app: batch 7 of 0_0' failed: ZeroDivisionError: division by zero"
    assert second.startswith("Traceback")
    assert last == first.partition("failed: ")[2]
    assert caught.value.__cause__ is None
