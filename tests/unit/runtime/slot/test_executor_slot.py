"""What the driver knows of a slot on another host."""

import threading
from types import SimpleNamespace

import pytest

from sparkrelay.runtime.contract.host_metadata import HostMetadata
from sparkrelay.runtime.slot import executor_slot
from sparkrelay.runtime.slot.executor_slot import ExecutorSlot
from sparkrelay.runtime.spark.jobs import JobFailed
from sparkrelay.runtime.worker.slot_keeper import ClaimedSlot
from sparkrelay.types import ProcessId, TaskId

KEPT, GONE, OTHER = (TaskId(0, number) for number in range(3))


class ExecutorTarget:
    """An executor whose jobs the test runs."""

    description = "executor 1 on node"

    def __init__(self):
        self.cancelled = threading.Event()

    def renewed(self):
        return self

    def require_alive(self):
        pass

    def source(self, spark_partitions):
        assert spark_partitions == 1, "one Spark task does it"
        return SimpleNamespace(mapInArrow=lambda step, schema: None)

    def job_group(self, name):
        return name

    def cancel(self, group):
        assert group == "sparkrelay-release-slot"
        self.cancelled.set()


@pytest.fixture
def slot():
    claimed = ClaimedSlot(
        path="/state/app/0",
        number=0,
        process_id=ProcessId.parse("aaaaaaaa-0000-0000-0000-000000000000"),
        host_metadata=HostMetadata("node"),
        tasks=(KEPT, GONE, OTHER),
        keeper=1,
        keeper_start="1",
    )
    return ExecutorSlot(ExecutorTarget(), claimed)


@pytest.mark.timeout(60)
def test_giving_the_slot_back_does_not_wait_for_ever(slot, monkeypatch):
    """With the last executor dead the job would wait for the next one, and who stops would wait for the job."""

    def run(target, *_, **__):
        target.cancelled.wait()
        raise JobFailed("cancelled")

    monkeypatch.setattr(executor_slot, "run_job", run)
    monkeypatch.setattr(executor_slot, "_RELEASE_SECONDS", 0.01)
    slot.release()
    assert slot._target.cancelled.is_set()


def test_a_slot_that_cannot_be_given_back_holds_up_nobody(slot, monkeypatch, caplog):
    """The session may be gone, and Spark says so in its own ways."""
    caplog.set_level("INFO", logger="sparkrelay.runtime.slot.executor_slot")

    def run(*_, **__):
        raise ConnectionError("the JVM is gone")

    monkeypatch.setattr(executor_slot, "run_job", run)
    slot.release()
    assert caplog.messages == ["slot /state/app/0 is released when its executor ends: the JVM is gone"]


def clean(slot, monkeypatch, answer, kept=(KEPT,)):
    def run(*_, **__):
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(executor_slot, "run_job", run)
    return slot.remove_obsolete(frozenset(kept), 1000.0, 1000.0)


def held(slot):
    return [task for task in (KEPT, GONE, OTHER) if slot.holds(task)]


def test_what_was_cleaned_up_is_not_held_any_more(slot, monkeypatch):
    clean(slot, monkeypatch, ["/state/app/0/0_1"])
    assert held(slot) == [KEPT, OTHER]


def test_who_comes_later_learns_of_what_came_and_went_since_the_claim(slot, monkeypatch):
    """A stream thread that replaces another one looks at the copies of the same slot."""
    later = TaskId(1, 0)
    assert slot.task_dir(later).name == "1_0"
    clean(slot, monkeypatch, ["/state/app/0/0_1"], kept={KEPT, OTHER, later})
    assert slot.task_ids() == [KEPT, OTHER, later]


def test_after_a_clean_up_that_was_broken_off_only_what_stays_for_sure_is_held(slot, monkeypatch):
    with pytest.raises(JobFailed):
        clean(slot, monkeypatch, JobFailed("cancelled"))
    assert held(slot) == [KEPT]
    # It may have removed some: what the next one does not find is not there for that.
    clean(slot, monkeypatch, [])
    assert held(slot) == [KEPT]
    clean(slot, monkeypatch, [], kept={KEPT, OTHER})
    assert held(slot) == [KEPT, OTHER]
