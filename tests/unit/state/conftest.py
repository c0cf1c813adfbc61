from __future__ import annotations

import subprocess
import sys
import textwrap

import pyarrow as pa
import pytest
from tests.waiting import LONG

from sparkrelay.state import BatchStamp, MergeResult, TaskStore
from sparkrelay.state.view import merging
from sparkrelay.types import TopicPartition

INPUT = TopicPartition("input", 0)


def contents(store, name="s"):
    """A store's keys and values as a dict, and the keys in the order they came."""
    return {
        key: value
        for batch in store.scan(name)
        for key, value in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
    }


class Driver:
    """Sends batches to one store as a driver would, one range after the other."""

    def __init__(self, store, *, task_epoch=1, leg="leg", name="s"):
        self.store, self.task_epoch, self.leg, self.name = store, task_epoch, leg, name
        self.number = store.header.batch
        self.committed = self.number
        self.position = store.header.positions.get(INPUT, 0)
        store.take_over(task_epoch)

    def stamp(self, **changes):
        fields = {
            "task_epoch": self.task_epoch,
            "number": self.committed + 1,
            "committed": self.committed,
            "ranges": {INPUT: (self.position, self.position + 10)},
            "positions_before": {INPUT: self.position},
        }
        return BatchStamp(**{**fields, **changes})

    def apply(self, rows, *, commit=True, leg=None, **changes):
        """Set each key to its value (None deletes); emit the old values."""
        keys, values = list(rows), list(rows.values())

        def merge(old):
            emitted = pa.record_batch({"old": old})
            return MergeResult(new=pa.array(values, pa.binary()), emitted=emitted)

        applied = self.store.change_batch(
            leg or self.leg,
            self.name,
            batch=self.stamp(**changes),
            operate=merging(self.name, pa.array(keys, pa.binary()), merge),
        )
        if commit:
            self.committed += 1
            self.position += 10
        return applied


@pytest.fixture
def path(tmp_path):
    return tmp_path / "0_1"


@pytest.fixture
def store(path):
    opened = TaskStore.open(path)
    yield opened
    opened.close(clean=False)


@pytest.fixture
def driver(store):
    return Driver(store)


@pytest.fixture
def make_driver():
    return Driver


@pytest.fixture
def read_all():
    return contents


@pytest.fixture
def run_child():
    """Run code in a Python process of its own; returns what it printed, and fails with what it complained about."""

    def run(code, *arguments):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=LONG,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run
