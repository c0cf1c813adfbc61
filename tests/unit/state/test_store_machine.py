"""A task's store against a model, through every order of batches, retries, undoing, restoring and reopening."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.examples import examples

from sparkrelay.errors import StoreOutOfStepException
from sparkrelay.state import BatchStamp, Marker, MergeResult, TaskStore, store
from sparkrelay.state.changelog import MARKER_KEY
from sparkrelay.state.reader import UNCOMMITTED, StoreReader
from sparkrelay.state.view import merging
from sparkrelay.types import TopicPartition

# Leg -> store and topic: a and b read one topic, a and c write one store.
LEGS = {"a": ("one", "t"), "b": ("two", "t"), "c": ("one", "u")}
STORES = ("one", "two")
KEYS = [b"", b"\x00", b"k", b"l", MARKER_KEY, b"x" * 510, b"x" * 511, b"x" * 600, b"x" * 599 + b"y", b"\xff" * 512]
ROWS = st.dictionaries(st.sampled_from(KEYS), st.none() | st.binary(max_size=3), max_size=5)


class BrokenOffError(Exception):
    """Stands for the death of a worker."""


class StoreMachine(RuleBasedStateMachine):
    @initialize(keys_at_once=st.sampled_from([1, 2, 16_384]))
    def start(self, keys_at_once):
        self.keys_at_once, self.patched = keys_at_once, pytest.MonkeyPatch()
        self.patched.setattr(store, "_KEYS_AT_ONCE", keys_at_once)
        self.home = Path(tempfile.mkdtemp(prefix="sparkrelay-store-"))
        self.path = self.home / "0_0"
        self.store = TaskStore.open(self.path)
        self.read = None, None
        self.task_epoch = 1
        self.store.take_over(self.task_epoch)
        #: What the store holds now, and held after the last batch that it knows as committed.
        self.now = {name: {} for name in STORES}
        self.base = {name: {} for name in STORES}
        self.batch = 0
        self.positions = {}
        #: The driver's view: what is committed, and what the unfinished batch did, leg by leg.
        self.committed = 0
        #: The last batch that a successor learns of: batches without a stateful leg write no marker.
        self.marked = 0
        self.at = {"t": 0, "u": 0}
        self.pending = {}
        #: How often the batch was tried, and which of the tries the pending legs are of.
        self.tries = self.pending_try = 1
        self.changelog = dict.fromkeys(STORES, 0)

    def teardown(self):
        if hasattr(self, "store"):
            self.patched.undo()
            self.store.close(clean=False)
            shutil.rmtree(self.home)

    def stamp(self, leg, **changes):
        topic = TopicPartition(LEGS[leg][1], 0)
        start = self.at[topic.topic]
        fields = {
            "task_epoch": self.task_epoch,
            "number": self.committed + 1,
            "committed": self.committed,
            "ranges": {topic: (start, start + 5)},
            "positions_before": {topic: start},
            "tries": self.tries,
        }
        return BatchStamp(**{**fields, **changes})

    def learn_committed(self):
        """The store learns what is committed: its base moves on."""
        if self.batch < self.committed:
            self.batch = self.committed
            self.positions.update(self.known)
            self.base = self.saved

    def begin(self, data):
        """Begin a leg of the batch: what an earlier try did is taken back."""
        if not self.pending:
            self.learn_committed()
        if self.pending_try < self.tries:
            self.now = {store: dict(held) for store, held in self.base.items()}
            self.pending, self.pending_try = {}, self.tries
        leg = data.draw(st.sampled_from([leg for leg in LEGS if leg not in self.pending]))
        return leg, LEGS[leg][0]

    @precondition(lambda self: len(self.pending) < len(LEGS) or self.pending_try < self.tries)
    @rule(data=st.data(), rows=ROWS)
    def apply(self, data, rows):
        leg, name = self.begin(data)
        before = dict(self.now[name])
        seen = []

        def merge(old):
            seen.extend(old.to_pylist())
            return MergeResult(pa.array(list(rows.values()), pa.binary()), pa.record_batch({"old": old}))

        keys = pa.array(list(rows), pa.binary())
        applied = self.store.change_batch(leg, name, batch=self.stamp(leg), operate=merging(name, keys, merge))
        assert applied.emitted.column(0).to_pylist() == seen
        assert applied.values.to_pylist() == list(rows.values())
        assert seen == [before.get(key) for key in rows]
        for key, value in rows.items():
            self.now[name].pop(key, None) if value is None else self.now[name].__setitem__(key, value)
        self.pending[leg] = self.tries

    @precondition(lambda self: len(self.pending) < len(LEGS) or self.pending_try < self.tries)
    @rule(data=st.data(), rows=ROWS, parts=st.integers(1, 3))
    def break_off(self, data, rows, parts):
        """A leg dies between two parts of its changes, of which it has put some into the store."""
        if parts * self.keys_at_once >= len(rows):
            return
        leg, name = self.begin(data)
        left, put = iter(range(parts)), self.store._put_part

        def put_some(*arguments):
            if next(left, None) is None:
                raise BrokenOffError
            return put(*arguments)

        self.store._put_part = put_some
        new = MergeResult(pa.array(list(rows.values()), pa.binary()), None)
        with pytest.raises(BrokenOffError):
            self.store.change_batch(
                leg,
                name,
                batch=self.stamp(leg),
                operate=merging(name, pa.array(list(rows), pa.binary()), lambda _: new),
            )
        del self.store._put_part
        for key, value in sorted(rows.items())[: parts * self.keys_at_once]:
            self.now[name].pop(key, None) if value is None else self.now[name].__setitem__(key, value)
        self.pending[leg] = self.tries
        # It cannot be committed.
        self.tries += 1

    @precondition(lambda self: self.pending)
    @rule()
    def try_again(self):
        """What the last try applied stays until a leg of the new one comes."""
        self.tries += 1

    @precondition(lambda self: self.pending and self.pending_try == self.tries)
    @rule()
    def commit(self):
        self.known = {}
        for leg in self.pending:
            topic = LEGS[leg][1]
            self.known[TopicPartition(topic, 0)] = self.at[topic] + 5
        for partition, end in self.known.items():
            self.at[partition.topic] = end
        self.committed += 1
        self.marked = self.committed
        self.saved = {name: dict(rows) for name, rows in self.now.items()}
        self.pending, self.tries, self.pending_try = {}, 1, 1

    @precondition(lambda self: not self.pending)
    @rule(batches=st.integers(1, 3))
    def commit_without_a_stateful_leg(self, batches):
        if self.batch == self.committed:
            self.known, self.saved = {}, {name: dict(rows) for name, rows in self.now.items()}
        self.committed += batches

    @precondition(lambda self: self.batch < self.committed)
    @rule()
    def commit_known(self):
        self.store.commit_known(self.committed, {})
        self.learn_committed()

    @precondition(lambda self: self.batch == self.committed)
    @rule(nobody=st.booleans())
    def take_over(self, nobody):
        if nobody:
            assert [leg for leg, _ in self.store.take_over(0)] == [*reversed(self.pending)]
            self.pending = {}
        self.task_epoch += 1
        undone = self.store.take_over(self.task_epoch)
        assert undone == [(leg, self.committed + 1) for leg in reversed(self.pending)]
        self.now = {name: dict(rows) for name, rows in self.base.items()}
        self.pending, self.tries, self.pending_try = {}, 1, 1

    @rule()
    def what_comes_late_for_a_task_epoch_takes_nothing_back(self):
        assert self.store.take_over(self.task_epoch) == []

    @precondition(lambda self: self.batch == self.committed and not self.pending)
    @rule(
        name=st.sampled_from(STORES),
        rows=st.lists(st.tuples(st.sampled_from(KEYS), st.none() | st.binary(max_size=3)), max_size=6),
        marked=st.booleans(),
        successor=st.booleans(),
    )
    def restore(self, name, rows, marked, successor):
        marker = None
        if marked:
            self.marked = self.marked + 1 if successor else self.committed + 1
            self.batch = self.committed = max(self.batch, self.marked)
            self.at = {topic: at + 7 for topic, at in self.at.items()}
            self.positions = {TopicPartition(topic, 0): at for topic, at in self.at.items()}
            marker = Marker(self.marked, self.positions)
        self.changelog[name] += len(rows) + 2
        partition = TopicPartition(f"{name}-changelog", 0)
        self.store.restore(
            name,
            partition,
            pa.array([key for key, _ in rows], pa.binary()),
            pa.array([value for _, value in rows], pa.binary()),
            self.changelog[name],
            marker,
        )
        for key, value in rows:
            self.now[name].pop(key, None) if value is None else self.now[name].__setitem__(key, value)
        self.base = {store: dict(held) for store, held in self.now.items()}

    @precondition(lambda self: self.pending)
    @rule()
    def restoring_over_a_batch_is_refused(self):
        with pytest.raises(StoreOutOfStepException, match="undo it first"):
            self.store.restore("one", TopicPartition("one-changelog", 0), pa.array([b"k"]), pa.array([b"v"]), 999, None)

    @rule(
        leg=st.sampled_from(sorted(LEGS)),
        change=st.sampled_from(["epoch", "later", "earlier", "try", "position", "stale"]),
    )
    def what_does_not_fit_is_refused(self, leg, change):
        topic = TopicPartition(LEGS[leg][1], 0)
        at = self.at[topic.topic]
        changes = {
            "epoch": {"task_epoch": self.task_epoch - 1},
            "later": {"number": self.committed + 2},
            "earlier": {"number": self.committed},
            "try": {"tries": self.tries - 1},
            "position": {"ranges": {topic: (at + 1, at + 6)}, "positions_before": {topic: at + 1}},
            "stale": {"committed": self.batch - 1, "number": self.batch},
        }[change]
        if change == "later" and not self.pending:
            return  # a batch without stateful legs may have come between
        if change == "try" and (self.tries == 1 or not self.pending or self.pending_try < self.tries):
            return
        twice = leg in self.pending and self.pending_try == self.tries
        known = self.known if self.batch < self.committed else {}
        if change == "position" and not twice and topic not in {**self.positions, **known}:
            return  # a store that has seen nothing takes any position
        with pytest.raises(StoreOutOfStepException, match="0_0"):
            self.store.change_batch(
                leg,
                LEGS[leg][0],
                batch=self.stamp(leg, **changes),
                operate=merging(LEGS[leg][0], pa.array([b"k"]), pytest.fail),
            )

    @rule(clean=st.booleans())
    def reopen(self, clean):
        self.store.close(clean=clean)
        self.store = TaskStore.open(self.path)

    @rule(whole=st.booleans())
    def another_instance_reads_it_through(self, whole):
        self.store.opened_by(uuid.uuid4().hex)
        left = iter([False, True])
        assert self.store.read_through(lambda: not whole and next(left)) or not whole

    @invariant()
    def agrees_with_the_model(self):
        if not hasattr(self, "store"):
            return
        for name in STORES:
            held = {
                key: value
                for rows in self.store.scan(name)
                for key, value in zip(rows.column(0).to_pylist(), rows.column(1).to_pylist(), strict=True)
            }
            assert held == self.now[name]
            assert self.store.rows(name) == len(self.now[name])
            assert self.store.read(name, pa.array(KEYS, pa.binary())).to_pylist() == [
                self.now[name].get(key) for key in KEYS
            ]
        # Another process has one of its own; in this one there is one environment.
        if self.read[0] is not self.store:
            self.read = self.store, StoreReader(self.path, self.store._environment)
        # The same one over several batches, since it keeps what it has seen.
        reader = self.read[1]
        known = self.committed, self.base if self.pending else self.now
        for committed, model in (known, (None, self.base), (UNCOMMITTED, self.now)):
            for name in STORES:
                shown = reader.read(name, lambda seen: seen.get(pa.array(KEYS)).to_pylist(), committed=committed)
                assert shown == [model[name].get(key) for key in KEYS]
                for start, stop in ((b"", None), (b"\x00", b"l"), (b"x" * 511, b"\xff")):
                    found = reader.read(name, lambda snapshot: snapshot.between(start, stop), committed=committed)  # noqa: B023 - called at once
                    rows = sorted(model[name].items())
                    inside = [(k, v) for k, v in rows if k >= start and (stop is None or k < stop)]
                    assert list(zip(*found.to_pydict().values(), strict=True)) == inside
                    few = reader.read(name, lambda snapshot: snapshot.between(start, stop, 2), committed=committed)  # noqa: B023
                    assert few.num_rows == min(2, len(inside))
                    assert set(zip(*few.to_pydict().values(), strict=True)) <= set(inside)
        header = self.store.header
        assert header.batch == self.batch
        assert dict(header.positions) == self.positions
        assert header.task_epoch == self.task_epoch
        if self.batch == self.committed:
            assert [entry.leg for entry in header.journals] == list(self.pending)


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=examples(60, 2), stateful_step_count=30, deadline=None)
