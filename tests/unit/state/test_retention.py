"""Windows that are over and kept for a while: what is there, what is final, through undoing, restores and takeovers."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from hypothesis import given, settings, strategies as st
from tests.examples import examples

from sparkrelay.state import BatchStamp, Marker, MergeResult, TaskStore, Watermark
from sparkrelay.state.changelog import encode_changelog, encode_marker, split
from sparkrelay.state.view import merging
from sparkrelay.state.window_keys import NO_TIME, end_bytes, end_of, expired_with, over
from sparkrelay.types import TopicPartition

INPUT = TopicPartition("input", 0)
CHANGELOG = TopicPartition("s-changelog", 0)
SIZE = 10

ROWS = st.lists(st.tuples(st.integers(0, 120), st.sampled_from([b"a", b"b"])), max_size=4)
BATCHES = st.tuples(
    ROWS,
    st.sampled_from([0, 0, 15, 40, 1 << 61]),
    st.sampled_from(["commit", "commit", "undo", "try again"]),
    # Who has the next batch: the same owner, the standby, or a process without a copy.
    st.sampled_from(["stay", "stay", "standby", "standby, undone", "nobody"]),
)


def binary(values):
    return pa.array(values, pa.binary())


class Copy:
    """One process's store, brought forward from a changelog or by batches of its own."""

    def __init__(self, path):
        self.store, self.epoch = TaskStore.open(path), 0

    def follow(self, log):
        start = self.store.header.changelog.get(CHANGELOG, 0)
        if start < len(log):
            keys, values = zip(*log[start:], strict=True)
            self.store.restore("s", CHANGELOG, *split(binary(keys), binary(values))[:2], len(log), self.marker(log))

    @staticmethod
    def marker(log):
        keys, values = zip(*log, strict=True)
        return split(binary(keys), binary(values))[2]

    def apply(self, groups, watermark, tries, log_end):
        """Count rows into their groups; the store's own header says where it stands."""
        header = self.store.header
        number = self.committed + 1
        merge = lambda old: MergeResult(  # noqa: E731
            binary([b"%d" % (int(value or 0) + n) for value, n in zip(old.to_pylist(), groups.values(), strict=True)]),
            pa.record_batch({"old": old}),
        )
        at = (number - 1) * 10
        stamp = BatchStamp(
            self.epoch, number, self.committed, {INPUT: (at, at + 10)}, {INPUT: at}, {CHANGELOG: log_end}, tries=tries
        )
        assert header.watermark("s", self.committed) == self.store.header_before(stamp).watermark("s", self.committed)
        keys = binary(list(groups))
        applied = self.store.change_batch("leg", "s", batch=stamp, operate=merging("s", keys, merge, watermark))
        windows = self.store.after(applied, task_epoch=self.epoch).over()
        return applied, [key for rows in windows for key in rows.column("key").to_pylist()]

    def own(self, epoch):
        self.epoch = epoch
        self.store.take_over(epoch)

    def serve(self):
        self.committed = self.store.header.batch

    def rows(self, *, all_=False):
        start = None if all_ else over(self.store.header.expired_by("s"))
        return {
            (end_of(key), key[8:]): int(value)
            for batch in self.store.scan("s", start=start)
            for key, value in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
        }


@settings(deadline=None, max_examples=examples(60))
@given(st.lists(BATCHES, max_size=12))
def test_windows_are_kept_as_long_as_they_should_be_and_are_final_once(batches):
    with tempfile.TemporaryDirectory() as folder:
        opened = [Copy(Path(folder) / str(number)) for number in range(2)]
        owner, standby = opened
        owner.own(1)
        owner.serve()
        log, final, counts, watermark, expired = [], [], {}, NO_TIME, NO_TIME
        sources: dict[str, int] = {}
        for epoch, (rows, retention, outcome, following) in enumerate(batches, 2):
            groups: dict[bytes, int] = {}
            for time, key in rows:
                end = time // SIZE * SIZE + SIZE
                if end > watermark:
                    groups[end_bytes(end) + key] = groups.get(end_bytes(end) + key, 0) + 1
            newest = max([watermark, *(time for time, _ in rows)])
            mark = Watermark(newest, 0, True, retention, {"web": newest, "app": epoch})
            tries = 1
            if outcome == "try again":
                # It took a part of it, and more besides.
                owner.apply({end_bytes(200) + b"c": 1}, replace(mark, ms=150, sources={"web": 150}), 1, len(log))
                tries = 2
            applied, ended = owner.apply(groups, mark, tries, len(log))
            assert all(end > expired for end, _ in owner.rows(all_=True)), "what had expired by then is removed"
            if outcome == "undo":
                owner.own(epoch)
                owner.serve()
            else:
                owner.committed += 1
                for key, n in groups.items():
                    group = end_of(key), key[8:]
                    counts[group] = counts.get(group, 0) + n
                final += [(end_of(key), key[8:]) for key in ended]
                watermark, expired = mark.ms, expired_with(mark.ms, retention, expired)
                sources = mark.sources
                keys, values = encode_changelog(applied.keys, applied.values)
                log += zip(keys.to_pylist(), values.to_pylist(), strict=True)
                entry, after = applied.entry, {INPUT: owner.committed * 10}
                log.append(
                    encode_marker(Marker(owner.committed, after, "", entry.watermark, entry.expired, entry.sources))
                )
                standby.follow(log)
            if following == "nobody":
                opened.append(Copy(Path(folder) / str(len(opened))))
                owner = opened[-1]
            elif following != "stay":
                if following == "standby":
                    owner.store.commit_known(owner.committed, {CHANGELOG: len(log)})
                owner, standby = standby, owner
                standby.own(0)
            if following != "stay":
                owner.own(epoch)
                owner.follow(log)
                owner.serve()
            kept = {group: n for group, n in counts.items() if group[0] > expired}
            assert owner.rows() == kept
            assert owner.store.header.watermark("s") == watermark
            assert owner.store.header.sources_of("s") == sources
            standby.follow(log)
            assert standby.rows() == kept
            assert standby.store.header.sources_of("s") == sources
        assert sorted(final) == sorted(group for group in counts if group[0] <= watermark), "each once"
        for copy in opened:
            copy.store.close(clean=False)


def test_a_longer_retention_brings_nothing_back_and_a_shorter_one_removes_with_the_batch_after():
    assert expired_with(100, 30, NO_TIME) == 70
    assert expired_with(100, 60, 70) == 70
    assert expired_with(110, 0, 70) == 110
    assert expired_with(NO_TIME, 5, NO_TIME) == NO_TIME
    assert expired_with(0, 1 << 63, NO_TIME) == NO_TIME, "as long as anybody likes"
