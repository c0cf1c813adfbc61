"""A store knows whose it is and what it holds."""

import pyarrow as pa
import pytest

from sparkrelay.errors import IncompatibleTopologyException, StateStoreException, StoreCorruptedException
from sparkrelay.state import BatchStamp, Marker, MergeResult, TaskStore
from sparkrelay.state.view import merging
from sparkrelay.types import TopicPartition

INPUT, CHANGELOG = TopicPartition("in", 0), TopicPartition("s-changelog", 0)
ROWS = pa.record_batch({"row": pa.array([1])})


@pytest.fixture
def store(tmp_path):
    opened = TaskStore.open(tmp_path / "0_0")
    opened.take_over(1)
    yield opened
    opened.close(clean=True)


def apply(store, number, contents):
    start = (number - 1) * 10
    stamp = BatchStamp(1, number, number - 1, {INPUT: (start, start + 10)}, {INPUT: start}, contents=contents)
    keys = pa.array([b"k"], pa.binary())
    return store.change_batch("leg", "s", batch=stamp, operate=merging("s", keys, lambda old: MergeResult(keys, ROWS)))


def test_another_aggregate_is_refused_and_nothing_changes(store):
    apply(store, 1, "sum(n) of int by k string")
    before = store.header
    with pytest.raises(IncompatibleTopologyException, match=r"store 's' holds sum\(n\) .* now wants max\(n\)"):
        apply(store, 2, "max(n) of int by k string")
    assert store.header == before
    apply(store, 2, "sum(n) of int by k string")


def test_a_restored_store_knows_it_from_the_changelog(store):
    none = pa.array([], pa.binary())
    store.restore("s", CHANGELOG, none, none, 3, Marker(1, {INPUT: 10}, "sum(n) of int by k string"))
    with pytest.raises(IncompatibleTopologyException):
        apply(store, 2, "count(*) by k string")
    apply(store, 2, "sum(n) of int by k string")


def test_state_of_another_application_counts_as_damaged(store):
    store.claim("mine")
    store.claim("mine")
    with pytest.raises(StoreCorruptedException, match="belongs to application.id 'mine', not 'yours'"):
        store.claim("yours")


def test_state_of_a_changelog_that_was_made_anew_is_refused(store):
    store.claim("mine", {"s-changelog": "one"})
    store.claim("mine")
    store.claim("mine", {"s-changelog": "one", "t-changelog": "two"})
    assert store.header.topics == {"s-changelog": "one", "t-changelog": "two"}
    with pytest.raises(StateStoreException, match=r"task 0_0: .*'s-changelog' of id one, .* \(id other\).* remove "):
        store.claim("mine", {"s-changelog": "other"})
    assert store.header.topics["s-changelog"] == "one"


def test_the_error_of_a_new_changelog_removes_the_state_before_it_sets_offsets(store):
    """Offsets alone are no way out: the state would be refused again."""
    store.claim("mine", {"s-changelog": "one"})
    with pytest.raises(StateStoreException) as refused:
        store.claim("mine", {"s-changelog": "other"})
    text = str(refused.value)
    assert "sparkrelay reset --application-id mine ..." in text
    removal = text.index(f"To continue at the group's offsets with an empty store: first remove {store.path}")
    assert text.index("sparkrelay offsets set --application-id mine --topic TOPIC --to current ...") > removal


def test_a_store_that_the_task_has_no_more_is_emptied(store):
    rows = pa.array([b"k"], pa.binary())
    other = TopicPartition("t-changelog", 0)
    for name, changelog in (("s", CHANGELOG), ("t", other)):
        store.restore(name, changelog, rows, rows, 3, Marker(1, {INPUT: 10}, "count(*)"))
    assert store.keep_only({"s": CHANGELOG, "t": other}) == []
    assert store.keep_only({"s": CHANGELOG, "new": TopicPartition("new-changelog", 0)}) == [other]
    assert (store.rows("s"), store.rows("t")) == (1, 0)
    assert store.header.changelog == {CHANGELOG: 3}
    assert store.header.contents == {"s": "count(*)"}
    assert store.header.positions == {INPUT: 10}
    # It comes back: all of its changelog is restored.
    store.restore("t", other, rows, rows, 3, None)
    assert store.rows("t") == 1
    with pytest.raises(
        StoreCorruptedException, match=r"is of s-changelog-0, t-changelog-0, but task 0_0 has x-changelo"
    ):
        store.keep_only({"x": TopicPartition("x-changelog", 0)})
