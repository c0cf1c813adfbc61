"""The buffer in any order of answers, seeks, pauses and collections, and interrupted at any line."""

from __future__ import annotations

import itertools
import linecache
import sys
from collections import deque

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.examples import examples
from tests.unit.consumer.fetched_data import T0, T1, joined, positions, records, rows

from sparkrelay.consumer.base.mailbox import Mailbox
from sparkrelay.consumer.base.subscription import SubscriptionState
from sparkrelay.consumer.fetch import fetch_buffer
from sparkrelay.consumer.fetch.fetch_buffer import FetchBuffer
from sparkrelay.consumer.fetch.fetching import Fetched
from sparkrelay.types import TopicPartition


class Log:
    """A partition's batches: every record's value is its offset; some are missing, as compaction leaves them."""

    def __init__(self):
        self.batches, self.offsets = [], []
        for base in range(0, 60, 5):
            if base % 15 == 10:
                continue  # a gap
            self.batches.append((base, base + 4, records([f"{base + i}" for i in range(5)], base)))
            self.offsets += range(base, base + 5)

    def read(self, offset, count):
        found = [data for _, last, data in self.batches if last >= offset]
        return joined(*found[:count])


class Buffering(RuleBasedStateMachine):
    """A broker that answers what is wanted, and an application that does what it likes."""

    def __init__(self):
        super().__init__()
        self.log = Log()
        self.subscription = SubscriptionState()
        self.buffer = FetchBuffer(
            self.subscription,
            Mailbox(),
            read_committed=True,
            check_crcs=True,
            max_decompressed=1 << 20,
            out_of_range=lambda p, o: None,
        )
        self.in_flight = deque()
        self.next = {}
        self.subscription.assign_by_hand([T0, T1])
        for partition in (T0, T1):
            self.seek(partition, 0)

    partitions = st.sampled_from([T0, T1])

    def expected(self, partition):
        at = self.next[partition]
        return [offset for offset in self.log.offsets if offset >= at]

    @precondition(lambda self: not self.in_flight and self.buffer.has_room(1))
    @rule()
    def send(self):
        self.in_flight.append(dict(self.buffer.fetchable()))

    @precondition(lambda self: self.in_flight)
    @rule(count=st.integers(0, 3), which=st.sets(partitions, min_size=1))
    def answer(self, count, which):
        asked = self.in_flight.popleft()
        parts = [Fetched(p, offset, self.log.read(offset, count)) for p, offset in asked.items() if p in which]
        self.buffer.fetched(parts, 0.0, 1)

    @rule(partition=partitions, offset=st.integers(0, 60))
    def seek(self, partition, offset):
        if self.subscription.get(partition) is not None:
            self.subscription.seek(partition, offset)
            self.next[partition] = offset

    @rule(partition=partitions, paused=st.booleans())
    def pause(self, partition, paused):
        if self.subscription.get(partition) is not None:
            self.subscription.set_paused([partition], paused)

    @rule(kept=st.sets(partitions, min_size=1))
    def assign(self, kept):
        new = kept - self.subscription.assigned
        self.subscription.assign_by_hand(kept)
        for partition in new:
            self.seek(partition, self.next[partition])

    @rule(partition=partitions)
    def doubt(self, partition):
        self.buffer.drop(partition)

    @rule(max_records=st.integers(1, 20), max_bytes=st.sampled_from([None, 1, 5, 20]))
    def collect(self, max_records, max_bytes):
        table = self.buffer.collect(max_records, max_bytes)
        assert table.num_rows <= max_records
        for row in table.to_pylist():
            partition = TopicPartition("t", row["partition"])
            assert row["offset"] == self.expected(partition)[0]
            assert row["value"] == str(row["offset"]).encode()
            assert not self.subscription.get(partition).paused
            self.next[partition] = row["offset"] + 1

    @invariant()
    def memory_is_bounded(self):
        assert len({id(p.response) for p in self.buffer._parts if p.response is not None}) <= 2
        assert len(self.buffer._parts) == sum(map(len, self.buffer._chains.values()))
        kept = [p for p in self.buffer._parts if p.response is None]
        assert len(kept) <= 4

    @invariant()
    def positions_are_right(self):
        for partition, position in positions(self.subscription).items():
            assert self.next[partition] <= position <= (self.expected(partition) or [60])[0] or position >= 60


TestBuffering = Buffering.TestCase
TestBuffering.settings = settings(max_examples=examples(150), stateful_step_count=50, deadline=None)


class Interrupter:
    """Raises KeyboardInterrupt at one line of the buffer's code, as a signal may."""

    def __init__(self, after):
        self.left = after
        self.struck = False

    def __call__(self, frame, event, _):
        if frame.f_code.co_filename != fetch_buffer.__file__:
            return None
        # Not at the end of a with block, where only a tracer can strike: the lock would stay locked.
        text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        if event == "line" and not self.struck and not text.startswith("with "):
            self.left -= 1
            if self.left <= 0:
                self.struck = True
                raise KeyboardInterrupt
        return self


@pytest.mark.parametrize("held_back", [False, True])
def test_after_an_interrupt_at_any_line_a_reset_buffer_is_as_new(held_back):
    """A program that catches Ctrl-C may go on to poll."""
    before = sys.gettrace()
    for after in itertools.count(1):
        subscription = SubscriptionState()
        buffer = FetchBuffer(
            subscription,
            Mailbox(),
            read_committed=True,
            check_crcs=True,
            max_decompressed=1 << 20,
            out_of_range=lambda *_: None,
        )
        subscription.assign_by_hand([T0, T1])
        for partition in (T0, T1):
            subscription.seek(partition, 0)
        for node in (1, 2):
            part = T0 if node == 1 else T1
            buffer.fetched([Fetched(part, 0, records(["a", "b"]))], 0.0, node)
            buffer.fetched([Fetched(part, 2, records(["c"], base=2))], 0.0, node)
        if held_back:
            subscription.release(but_not=[T0])
            subscription.give_up([T1])
            subscription.drop([T1])
        returned, moved_from, interrupter = [], {}, Interrupter(after)
        sys.settrace(interrupter)
        try:
            for most in (1, 10):
                table = buffer.collect(most, None, moved_from)
                returned, moved_from = returned + rows(table), {}
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        if not interrupter.struck:
            break
        for partition, offset in moved_from.items():
            subscription.go_back(partition, offset)
        subscription.release()
        reported = buffer.changes
        buffer.reset()
        assert buffer.changes != reported
        assert all(buffer.has_room(node) for node in (1, 2))
        values = ["a", "b", "c"]
        for partition, offset in buffer.fetchable().items():
            if offset < len(values):
                buffer.fetched([Fetched(partition, offset, records(values[offset:], base=offset))], 0.0, 1)
        returned += rows(buffer.collect(10, None))
        held = sorted(subscription.assigned)
        assert sorted(returned) == [(p.partition, i, v.encode()) for p in held for i, v in enumerate(values)]
    assert after > 20
