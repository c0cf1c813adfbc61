"""SIGKILL of a process that writes a store: between every two steps of a change, and at any moment.

After each kill the store must open, and hold exactly the state before or after the batch that was under way; undoing
must give exactly the state after the last batch that is known as committed.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time

import pyarrow as pa
import pytest
from tests.marks import first_of, marked

from sparkrelay.state import (
    BatchStamp,
    MergeResult,
    TaskStore,
    journal,
    preconditions,
    store as stores,
)
from sparkrelay.state.damage import cleanliness
from sparkrelay.state.lmdb import environment, rows
from sparkrelay.state.view import merging
from sparkrelay.types import TopicPartition

pytestmark = pytest.mark.chaos

LEGS = {"first": ("one", TopicPartition("t", 0)), "second": ("two", TopicPartition("t", 0))}
EMPTY = {"one": {}, "two": {}}


def rows_of(number, leg):
    """The rows that a batch sets in a leg, always the same for the same number; one in ten deletes."""
    chance = random.Random(f"{number} {leg}")
    keys = chance.sample(range(3000), chance.choice([0, 1, 40, 400]))
    return {b"key-%d" % key: None if chance.random() < 0.1 else chance.randbytes(chance.randint(0, 60)) for key in keys}


#: So that the changes of a leg of the fourth batch are put in two parts and a rest.
PART = 2 * len(rows_of(4, "first")) // 5


def after_parts(state, number, leg, parts):
    """The model's state after some parts of what a batch changes in a leg."""
    changed = sorted(rows_of(number, leg).items())[: parts * PART]
    held = {**state[LEGS[leg][0]], **dict(changed)}
    return {**state, LEGS[leg][0]: {key: value for key, value in held.items() if value is not None}}


def after(state, number, legs=tuple(LEGS)):
    """The model's state after a batch, of some legs only if it was not finished."""
    state = {name: dict(held) for name, held in state.items()}
    for leg in legs:
        held = state[LEGS[leg][0]]
        held.update(rows_of(number, leg))
        for key in [key for key, value in held.items() if value is None]:
            del held[key]
    return state


def contents(store):
    return {
        name: {
            key: value
            for batch in store.scan(name)
            for key, value in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
        }
        for name in EMPTY
    }


def apply(store, number, leg, tries=1):
    """Apply a leg's share as a driver would send it that knows the batch before as committed."""
    name, partition = LEGS[leg]
    changed = rows_of(number, leg)
    stamp = BatchStamp(
        1,
        number,
        number - 1,
        {partition: (number - 1, number)},
        {partition: number - 1},
        {TopicPartition("c", 0): number},
        tries=tries,
    )

    def merge(_):
        emitted = pa.record_batch({"key": pa.array(list(changed), pa.binary())})
        return MergeResult(pa.array(list(changed.values()), pa.binary()), emitted)

    return store.change_batch(
        leg, name, batch=stamp, operate=merging(name, pa.array(list(changed), pa.binary()), merge)
    )


def undo(store):
    """Take back what is unfinished, and go on under the task epoch that batches are sent for."""
    undone = store.take_over(0)
    store.take_over(1)
    return undone


def die():
    os.kill(os.getpid(), signal.SIGKILL)


class Counter:
    """Counts the steps of a change and kills this process before one of them."""

    def __init__(self, fatal=None):
        self.fatal = fatal
        self.names = []

    def step(self, name):
        if len(self.names) == self.fatal:
            die()
        self.names.append(name)

    def watch(self, patch):
        """Put a step in front of, and behind, everything that a change does."""
        for owner, name in (
            (TaskStore, "_load"),
            (preconditions, "require_this_batch"),
            (preconditions, "require_next_batch"),
            (TaskStore, "_take_back"),
            (TaskStore, "_save"),
            (rows, "get"),
            (rows, "put"),
            (journal, "write"),
            (journal, "read"),
            (journal, "drop"),
            (cleanliness, "mark"),
            (environment.Environment, "write"),
            (environment.Environment, "sync"),
            (environment.Environment, "_grow"),
        ):
            patch.setattr(owner, name, self._around(getattr(owner, name), name))

    def _around(self, original, name):
        def stepped(*arguments, **named):
            self.step(f"before {name}")
            result = original(*arguments, **named)
            self.step(f"after {name}")
            return result

        return stepped


def in_child(action):
    """Run something in a forked child; return the signal that ended it, or 0. The parent must have no store open."""
    child = os.fork()
    if child == 0:
        try:
            action()
        except BaseException:  # noqa: BLE001 - the exit status says so
            os._exit(70)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else -os.WEXITSTATUS(status)


def prepare(path, batches):
    store = TaskStore.open(path)
    store.take_over(1)
    state = EMPTY
    for number in range(1, batches + 1):
        for leg in LEGS:
            apply(store, number, leg)
        state = after(state, number)
    return store, state


CHANGES = {
    # What the child does to a store with batches 1 to 3 in it, 3 of them known as committed once it says so.
    "apply": lambda store: apply(store, 4, "first"),
    "apply in parts": lambda store: apply(store, 4, "first"),
    "apply the second leg": lambda store: (apply(store, 4, "first"), apply(store, 4, "second")),
    "apply again": lambda store: (apply(store, 3, "first", tries=2), apply(store, 3, "second", tries=2)),
    "undo": lambda store: store.take_over(2),
    "commit": lambda store: store.commit_known(3, {}),
    "restore": lambda store: (
        store.commit_known(3, {}),
        store.restore("one", TopicPartition("c", 0), pa.array([b"key-1"]), pa.array([b"restored"]), 99, None),
    ),
    "close": lambda store: store.close(clean=True),
}


def allowed(state2, state3):
    """The states that a store with an unfinished batch 3 may be found in."""
    restored = {**state3, "one": {**state3["one"], b"key-1": b"restored"}}
    return {
        "apply": [state3, after(state3, 4, ["first"])],
        "apply in parts": [after_parts(state3, 4, "first", parts) for parts in range(4)],
        "apply the second leg": [state3, after(state3, 4, ["first"]), after(state3, 4)],
        "apply again": [state3, after(state2, 3, ["first"])],
        "undo": [state3, state2],
        "commit": [state3],
        "restore": [state3, restored],
        "close": [state3],
    }


@pytest.mark.parametrize("clean", marked([False, True], {False}), ids=["dirty", "clean"])
@pytest.mark.parametrize("change", marked(CHANGES, {"apply in parts", "undo", "restore"}))
def test_killed_between_any_two_steps(tmp_path, change, clean, monkeypatch):
    monkeypatch.setattr(environment, "_FIRST_MAP", 1 << 18)
    if change == "apply in parts":
        monkeypatch.setattr(stores, "_KEYS_AT_ONCE", PART)
    origin = tmp_path / "origin"
    store, state3 = prepare(origin, 3)
    store.close(clean=clean)
    state2 = after(after(EMPTY, 1), 2)
    counter = Counter()
    path = tmp_path / "0_0"

    def run():
        counter.watch(pytest.MonkeyPatch())
        CHANGES[change](TaskStore.open(path))
        counter.step("the end")
        if counter.fatal is None:
            (tmp_path / "steps").write_text("\n".join(counter.names))

    shutil.copytree(origin, path)
    assert in_child(run) == 0
    steps = (tmp_path / "steps").read_text().splitlines()
    assert len(steps) > 5
    seen = []
    for counter.fatal, step in enumerate(steps):
        shutil.rmtree(path)
        shutil.copytree(origin, path)
        assert in_child(run) == signal.SIGKILL, step
        store = TaskStore.open(path)
        found = contents(store)
        possible = allowed(state2, state3)[change]
        assert found in possible, f"killed at {step!r}, step {counter.fatal} of {steps}"
        if found not in seen:
            seen.append(found)
        header = store.header
        assert header.batch in {2, 3}
        assert header.positions == {TopicPartition("t", 0): header.batch}
        if header.changelog != {TopicPartition("c", 0): 99}:
            # What is known as committed stays, the rest goes; and the store then takes the next batch.
            undo(store)
            assert contents(store) == (state3 if header.batch == 3 else state2)
            apply(store, header.batch + 1, "first")
        store.close(clean=False)
    # The kills reached both sides of the change.
    assert seen == [state for state in possible if state in seen]
    assert len(seen) == len(possible)


@pytest.mark.parametrize("seed", first_of(range(3)))
def test_killed_at_any_moment(tmp_path, seed, monkeypatch):
    monkeypatch.setattr(environment, "_FIRST_MAP", 1 << 18)
    chance = random.Random(seed)
    path = tmp_path / "0_0"
    store, _ = prepare(path, 0)
    store.close(clean=False)
    number, states = 0, {0: EMPTY}
    for kill in range(12):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                store = TaskStore.open(path)
                undo(store)
                following = store.header.batch + 1
                while True:
                    for leg in LEGS:
                        apply(store, following, leg)
                        os.write(writer, b".")
                    following += 1
            finally:
                os._exit(70)
        os.close(writer)
        # Some batches in, then a moment that falls anywhere in the next one.
        for _ in range(chance.randint(1, 12)):
            assert os.read(reader, 1), "the child failed"
        time.sleep(chance.random() * 0.004)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reader)

        store = TaskStore.open(path)
        header = store.header
        for following in range(number + 1, header.batch + 2):
            states[following] = after(states[following - 1], following)
        legs = [entry.leg for entry in header.journals]
        assert {entry.batch for entry in header.journals} <= {header.batch + 1}
        assert legs == list(LEGS)[: len(legs)]
        story = f"seed {seed}, kill {kill}: batch {header.batch}, unfinished legs {legs}"
        assert contents(store) == after(states[header.batch], header.batch + 1, legs), story
        assert undo(store) == [(leg, header.batch + 1) for leg in reversed(legs)]
        assert contents(store) == states[header.batch], story
        number = header.batch
        store.close(clean=False)
    assert number > 12


def test_a_killed_reader_does_not_keep_the_file_growing(tmp_path):
    path = tmp_path / "0_0"
    store, _ = prepare(path, 3)
    store.close(clean=False)

    def read_for_ever():
        store = TaskStore.open(path)
        store._environment.read(lambda _: die())

    for _ in range(5):
        assert in_child(read_for_ever) == signal.SIGKILL
    store = TaskStore.open(path)
    sizes = []
    for number in range(4, 204):
        for leg in LEGS:
            apply(store, number, leg)
        sizes.append((path / "data.mdb").stat().st_size)
    assert sizes[-1] < 2 * sizes[99]
    store.close(clean=False)
