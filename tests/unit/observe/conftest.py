"""A snapshot of an instance, as the runtime would make it."""

import datetime as dt

import pytest

from sparkrelay.observe.counters import Counters
from sparkrelay.observe.snapshot import InstanceSnapshot, TaskMetadata, ThreadMetadata
from sparkrelay.types import TopicPartition

BEGAN = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)


def task(name, state, *, committed=None, ends=None, changelog_lag=0):
    return TaskMetadata(
        task_id=name,
        state=state,
        topic_partitions=frozenset(committed or ()),
        committed_offsets=committed or {},
        end_offsets=ends or {},
        lag=None,
        changelog_offsets={},
        changelog_end_offsets={},
        changelog_lag=changelog_lag,
        replay_began=None if state == "running" else BEGAN,
    )


@pytest.fixture
def snapshot():
    def make(*, state="RUNNING", blocked=False, trouble=None, active=(), standby=(), counters=None):
        thread = ThreadMetadata(
            thread_name="app-1",
            thread_state="RUNNING",
            process_id="p",
            executor_id=None,
            consumer_client_id="app-1",
            member_id="app-1-x",
            restore_consumer_client_id="app-1-restore",
            producer_client_ids=frozenset(["app-1-transactions"]),
            admin_client_id="app-1",
            active_tasks=tuple(active),
            standby_tasks=tuple(standby),
        )
        return InstanceSnapshot(
            application_id="app",
            state=state,
            alive=state in {"RUNNING", "REBALANCING"} and not blocked,
            ready=state == "RUNNING" and not blocked,
            trouble=trouble,
            threads=(thread,),
            totals=(counters or Counters()).totals(),
        )

    return make


@pytest.fixture
def busy(snapshot):
    """An instance with a task of each kind, and something counted of each."""
    counters = Counters()
    counters.batch(
        at=1_700_000_000.5,
        seconds=0.2,
        commit_seconds=0.02,
        records={"orders": 90, "again": 9},
        rows_written=7,
        late={"windows": 3, "joined": 0},
        reopened=1,
        failed=True,
    )
    counters.batch(
        at=1_700_000_001.5, seconds=99.0, commit_seconds=None, records={}, rows_written=0, reopened=0, failed=False
    )
    counters.lost({"orders": 40})
    counters.rebalance(1.5)
    counters.restored(1234)
    counters.error("broker")
    first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
    return snapshot(
        active=[
            task("0_0", "running", committed={first: 60}, ends={first: 100}),
            task("0_1", "running", committed={second: 5}, ends={}),
            task("0_2", "restoring", changelog_lag=4321),
            task("0_3", "restoring", changelog_lag=None),
        ],
        standby=[task("0_4", "standby", changelog_lag=12)],
        counters=counters,
    )
