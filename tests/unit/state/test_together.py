"""Merging into the stores of several tasks at once: the same as one by one, or nothing and one by one."""

import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from sparkrelay.errors import SerializationException, StoreCorruptedException
from sparkrelay.state import BatchStamp, MergeResult, TaskStore
from sparkrelay.state.batch import Watermark
from sparkrelay.state.lmdb import environment
from sparkrelay.state.together import TaskShare, merge_together
from sparkrelay.state.view import merging
from sparkrelay.types import TopicPartition

INPUT = TopicPartition("in", 0)


def binary(values):
    return pa.array(list(values), pa.binary())


def stamp(number, *, tries=1, epoch=1):
    return BatchStamp(epoch, number, number - 1, {INPUT: (number, number + 1)}, {INPUT: number}, tries=tries)


def opened(folder, count, **more):
    stores = []
    for number in range(count):
        store = TaskStore.open(folder / f"0_{number}", **more)
        store.take_over(1)
        stores.append(store)
    return stores


def merged(old, given):
    """Values are put as they are given, behind what was there; `b"-"` deletes."""
    pairs = zip(old.to_pylist(), given, strict=True)
    return binary(None if new == b"-" else (before or b"") + new for before, new in pairs)


def together(stores, number, changes, *, watermark=None, tries=1):
    """Merge a dict of changes into each store; return what came of it."""
    given = [value for own in changes for _, value in sorted(own.items())]
    shares = [
        TaskShare(store, stamp(number, tries=tries), binary(sorted(own)), watermark)
        for store, own in zip(stores, changes, strict=True)
    ]
    return merge_together("leg", "s", shares, lambda old: merged(old, given))


def alone(store, number, own, *, watermark=None, tries=1):
    def merge(old):
        return MergeResult(merged(old, [own[key] for key in sorted(own)]), pa.record_batch({"n": pa.array([1])}))

    return store.change_batch(
        "leg", "s", batch=stamp(number, tries=tries), operate=merging("s", binary(sorted(own)), merge, watermark)
    )


def contents(store):
    return [row for batch in store.scan("s") for row in zip(*batch.to_pydict().values(), strict=True)]


@pytest.fixture
def stores(tmp_path):
    made = opened(tmp_path, 3)
    yield made
    for store in made:
        store.close(clean=False)


#: As of windows, which begin with their end.
keys = st.builds(
    lambda end, rest: struct.pack(">Q", (1 << 63) + end) + rest, st.integers(1, 30_000), st.binary(max_size=2)
)
changes = st.lists(
    st.lists(st.dictionaries(keys, st.sampled_from([b"a", b"bc", b"-"]), max_size=6), min_size=3, max_size=3),
    min_size=1,
    max_size=20,
)


@pytest.mark.long
@given(batches=changes, timed=st.booleans())
def test_it_is_the_same_as_one_by_one(tmp_path_factory, batches, timed):
    first, second = (opened(tmp_path_factory.mktemp("stores"), 3) for _ in range(2))
    try:
        for number, own in enumerate(batches, 1):
            mark = Watermark(number * 1000, retention_ms=3000) if timed else None
            found = together(first, number, own, watermark=mark)
            assert found is not None
            for one, store, its in zip(found, second, own, strict=True):
                other = alone(store, number, its, watermark=mark)
                assert one.keys.equals(other.keys)
                assert one.values.equals(other.values)
                assert (one.entry, one.over) == (other.entry, other.over)
        for one, other in zip(first, second, strict=True):
            assert contents(one) == contents(other)
            assert one.header == other.header
            # And both can be taken back.
            one.take_over(2)
            other.take_over(2)
            assert contents(one) == contents(other)
            assert one.header == other.header
    finally:
        for store in (*first, *second):
            store.close(clean=False)


def test_what_was_written_together_is_read_by_another_process_as_it_is(stores, tmp_path):
    together(stores, 1, [{b"k": b"a"}, {b"k": b"b", b"l": b"c"}, {}])
    for store, rows in zip(stores, ([(b"k", b"a")], [(b"k", b"b"), (b"l", b"c")], []), strict=True):
        header = store.header
        store.close(clean=False)
        again = TaskStore.open(store.path)
        assert contents(again) == rows
        assert again.header == header
        again.close(clean=False)


@pytest.mark.parametrize("why", ["again", "closed", "long", "damaged", "unmergeable", "out of step"])
def test_what_is_unusual_is_left_to_be_done_one_by_one(stores, why):
    """Then nothing has changed, and the one that it is about says so when its turn comes."""
    assert together(stores, 1, [{b"k": b"a"}] * 3) is not None
    own = [{b"k": b"b"}] * 3
    if why == "closed":
        stores[1].close(clean=True)
        stores[1] = TaskStore.open(stores[1].path)
    elif why == "long":
        own = [*own[:2], {b"x" * 600: b"b"}]
    elif why == "damaged":
        table = stores[2]._table("s")
        stores[2].environment.write(lambda t: t.put(b"k", b"rubbish", db=table.handle))
    before = [store.header for store in stores]
    number = 3 if why == "out of step" else 2
    if why == "unmergeable":

        def merge(old):
            raise SerializationException("too much")

        shares = [TaskShare(store, stamp(2), binary([b"k"]), None) for store in stores]
        assert merge_together("leg", "s", shares, merge) is None
    else:
        assert together(stores, number, own, tries=2 if why == "again" else 1) is None
    assert [store.header for store in stores] == before
    if why in {"again", "closed", "long", "unmergeable"}:
        for store, its in zip(stores, own, strict=True):
            assert alone(store, 2, its, tries=2 if why == "again" else 1).entry.keys == 1
    elif why == "damaged":
        assert alone(stores[0], 2, own[0]).entry.keys == 1
        with pytest.raises(StoreCorruptedException, match="does not have the checksum it had"):
            alone(stores[2], 2, own[2])


def test_a_store_whose_map_is_full_is_done_by_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "_FIRST_MAP", 256 << 10)
    stores = opened(tmp_path, 3)
    rng = np.random.default_rng(1)
    large = {rng.bytes(20): rng.bytes(2000) for _ in range(200)}
    found = together(stores, 1, [{b"k": b"a"}, large, {b"k": b"b"}])
    assert [one is None for one in found] == [False, True, False]
    assert stores[1].header.journals == ()
    alone(stores[1], 1, large)
    assert [len(contents(store)) for store in stores] == [1, 200, 1]
    for store in stores:
        store.close(clean=False)


def test_a_take_over_in_between_is_seen_by_what_was_known(stores, run_child):
    """A header that is kept from one transaction to the next must not hide what another process has written."""
    together(stores, 1, [{b"k": b"a"}] * 3)
    run_child(
        """
        import sys
        from pathlib import Path
        from sparkrelay.state import TaskStore
        store = TaskStore.open(Path(sys.argv[1]))
        store.take_over(7)
        store.close(clean=False)
        """,
        stores[0].path,
    )
    assert stores[0].header.task_epoch == 7
    assert together(stores, 2, [{b"k": b"b"}] * 3) is None
