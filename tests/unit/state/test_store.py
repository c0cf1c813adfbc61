"""One task's store: what the state machine does not reach - growth, full disks, other processes, other boots."""

from __future__ import annotations

import os
import shutil

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from sparkrelay.errors import (
    IncompatibleTopologyException,
    StateStoreException,
    StoreCorruptedException,
    StoreFullException,
    StoreOutOfStepException,
)
from sparkrelay.state import Marker, MergeResult, TaskStore, restorable, store, view
from sparkrelay.state.changelog import MARKER_KEY
from sparkrelay.state.home.removal import wipe
from sparkrelay.state.lmdb import environment
from sparkrelay.state.reader import StoreReader
from sparkrelay.state.view import merging
from sparkrelay.state.window_keys import end_bytes
from sparkrelay.types import TopicPartition

INPUT = TopicPartition("input", 0)
CHANGELOG = TopicPartition("s-changelog", 0)

# A driver in another process: opens the store, applies one batch of rows that argv names, prints what it emitted.
OTHER_PROCESS = """
import sys
from pathlib import Path
import pyarrow as pa
from sparkrelay.state import BatchStamp, MergeResult, TaskStore
from sparkrelay.state.view import merging
from sparkrelay.types import TopicPartition
path, epoch, number, count, size = Path(sys.argv[1]), *map(int, sys.argv[2:])
store = TaskStore.open(path)
at = TopicPartition("input", 0)
start = (number - 1) * 10
stamp = BatchStamp(epoch, number, number - 1, {at: (start, start + 10)}, {at: start})
keys = [b"key%05d" % i for i in range(count)]
merge = lambda old: MergeResult(pa.array([b"v" * size] * count, pa.binary()), pa.record_batch({"old": old}))
try:
    operate = merging("s", pa.array(keys, pa.binary()), merge)
    applied = store.change_batch("leg", "s", batch=stamp, operate=operate)
except Exception as error:
    print(type(error).__name__, error)
else:
    print(applied.emitted.column(0).null_count)
store.close(clean=False)
"""


def test_a_new_store_knows_nothing(store):
    header = store.header
    assert (header.task_epoch, header.batch, header.positions, header.changelog) == (0, 0, {}, {})
    assert store.rows("s") == 0
    assert list(store.scan("s")) == []
    assert store.read("s", pa.array([b"k"], pa.binary())).to_pylist() == [None]


def test_a_store_that_must_exist_is_not_made(path):
    with pytest.raises(StateStoreException, match="there is no state in"):
        TaskStore.open(path, create=False)
    assert not path.exists()


def test_opening_twice_in_one_process_is_an_error(store, path):
    with pytest.raises(StateStoreException, match="already open"):
        TaskStore.open(path)


def test_read_keeps_order_and_repeats(driver):
    driver.apply({b"a": b"1", b"b": b"2", b"": b"3"})
    asked = pa.array([b"b", b"x", b"a", b"b", b""], pa.binary())
    assert driver.store.read("s", asked).to_pylist() == [b"2", None, b"1", b"2", b"3"]


def test_many_keys_are_read_in_their_order(driver):
    rows = {b"k%05d" % number: b"v%d" % number for number in range(3000)}
    driver.apply(rows)
    wanted = [b"k%05d" % (number * 7919 % 4000) for number in range(5000)]
    assert driver.store.read("s", pa.array(wanted, pa.binary())).to_pylist() == [rows.get(key) for key in wanted]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_binary()])
def test_keys_may_be_strings(driver, kind):
    merge = lambda old: MergeResult(pa.array([b"1", b"2"]), pa.record_batch({"old": old}))  # noqa: E731
    keys = pa.chunked_array([pa.array(["ü"], pa.string()).cast(kind), pa.array(["a"], pa.string()).cast(kind)])
    driver.store.change_batch("leg", "s", batch=driver.stamp(), operate=merging("s", keys, merge))
    assert driver.store.read("s", pa.array(["a", "ü"])).to_pylist() == [b"2", b"1"]


def test_null_and_repeated_keys_are_refused(driver):
    with pytest.raises(StateStoreException, match="1 keys of a batch are null"):
        driver.apply({None: b"1"})
    twice = pa.array([b"b", b"a", b"b"], pa.binary())
    with pytest.raises(StateStoreException, match=r"duplicate key b'b' in one batch"):
        driver.store.change_batch("leg", "s", batch=driver.stamp(), operate=merging("s", twice, pytest.fail))


def test_a_merge_that_fails_or_miscounts_changes_nothing(driver, read_all):
    driver.apply({b"a": b"1"})
    before = driver.store.header

    def fail(_):
        raise ZeroDivisionError

    keys = pa.array([b"a"], pa.binary())
    with pytest.raises(ZeroDivisionError):
        driver.store.change_batch("leg", "s", batch=driver.stamp(), operate=merging("s", keys, fail))
    short = lambda _: MergeResult(pa.array([], pa.binary()), pa.record_batch({"x": [1]}))  # noqa: E731
    with pytest.raises(StateStoreException, match="merging 1 keys of store 's' gave 0 values"):
        driver.store.change_batch("leg", "s", batch=driver.stamp(), operate=merging("s", keys, short))
    assert driver.store.header == before
    assert read_all(driver.store) == {b"a": b"1"}


def test_a_batch_without_keys_moves_the_position(driver):
    driver.apply({})
    driver.apply({b"a": b"1"})
    assert driver.store.header.positions == {INPUT: 10}


def test_changelog_offsets_only_move_forward(driver):
    driver.apply({b"a": b"1"}, changelog_next={CHANGELOG: 7})
    driver.apply({b"a": b"2"}, changelog_next={CHANGELOG: 5})
    assert driver.store.header.changelog == {CHANGELOG: 7}
    driver.store.commit_known(2, {CHANGELOG: 12})
    assert driver.store.header.changelog == {CHANGELOG: 12}
    assert driver.store.header.positions == {INPUT: 20}


def test_errors_say_both_sides(driver):
    driver.apply({b"a": b"1"}, commit=False)
    with pytest.raises(StoreOutOfStepException, match="batch 1 was sent under task epoch 9, .* taken over under 1"):
        driver.apply({b"a": b"2"}, task_epoch=9)
    with pytest.raises(StoreOutOfStepException, match=r"of leg 'leg' was sent as try 1, but try 1 of leg 'leg' is in"):
        driver.apply({b"a": b"2"})
    with pytest.raises(StoreOutOfStepException, match=r"batch 2 was sent after 0, .* holds batch 1 of leg 'leg'"):
        driver.apply({b"a": b"2"}, number=2)
    with pytest.raises(StoreOutOfStepException, match=r"for input-0 from offset 11, the store is at 10"):
        driver.apply({b"a": b"2"}, number=2, committed=1, ranges={INPUT: (11, 20)}, positions_before={INPUT: 11})


# -- restoring --------------------------------------------------------------------------------------------------------


def test_a_slice_that_was_overtaken_is_refused(store):
    one = pa.array([b"k"], pa.binary())
    store.restore("s", CHANGELOG, one, one, 10, None)
    with pytest.raises(StoreOutOfStepException, match="up to offset 5 came after the store had reached 10"):
        store.restore("s", CHANGELOG, one, one, 5, None)
    store.restore_reached(CHANGELOG, 8)
    assert store.header.changelog == {CHANGELOG: 10}
    store.restore_reached(CHANGELOG, 12)
    assert store.header.changelog == {CHANGELOG: 12}


def test_a_store_whose_changelog_begins_behind_it_is_emptied_and_stands_at_that_beginning(store):
    keys = pa.array([end_bytes(50), end_bytes(1 << 62)], pa.binary())
    other = TopicPartition("r-changelog", 0)
    store.restore("s", CHANGELOG, keys, keys, 15, Marker(7, {INPUT: 70}, "counts", 40, 30, {"web": 40}))
    store.restore("r", other, keys, keys, 9, None)
    before = store.header
    assert store.restore_anew("s", CHANGELOG, 30)
    assert (store.rows("s"), store.rows("r")) == (0, 2)
    emptied = before._replace(changelog={CHANGELOG: 30, other: 9}, sums={"r": before.sums["r"]})
    assert store.header == emptied, "no time goes back"
    # Whoever comes to it late takes nothing away.
    store.restore("s", CHANGELOG, keys, keys, 32, None)
    assert not store.restore_anew("s", CHANGELOG, 30)
    assert (store.rows("s"), store.header.changelog[CHANGELOG]) == (2, 32)
    assert not store.restore_anew("new", TopicPartition("new-changelog", 0), 3), "there was nothing"


def test_a_store_is_not_emptied_over_a_batch_nor_for_a_former_owner(driver, read_all):
    driver.apply({b"a": b"1"}, commit=False)
    with pytest.raises(StoreOutOfStepException, match="undo it first"):
        driver.store.restore_anew("s", CHANGELOG, 30, task_epoch=1)
    driver.store.take_over(2)
    with pytest.raises(StoreOutOfStepException, match="comes late"):
        driver.store.restore_anew("s", CHANGELOG, 30, task_epoch=1)
    assert driver.store.header.changelog == {}


def test_what_comes_late_for_a_former_task_epoch_changes_nothing(driver):
    """A Spark job that was cancelled may have a worker that goes on for a moment."""
    driver.apply({b"a": b"1"}, commit=False)
    store = driver.store
    assert store.take_over(2) == [("leg", 1)]
    one = pa.array([b"k"], pa.binary())
    store.restore("s", CHANGELOG, one, one, 9, None, task_epoch=2)
    store.restore("r", TopicPartition("r-changelog", 0), one, one, 9, None, task_epoch=2)
    before = store.header
    late = [
        lambda: store.commit_known(1, {CHANGELOG: 12}, task_epoch=1),
        lambda: store.keep_only({"r": TopicPartition("r-changelog", 0)}, task_epoch=1),
        lambda: store.restore("s", CHANGELOG, one, one, 10, None, task_epoch=1),
        lambda: store.restore_reached(CHANGELOG, 10, task_epoch=1),
    ]
    for change in late:
        with pytest.raises(StoreOutOfStepException, match="command of task epoch 1 comes late: .* under 2"):
            change()
    assert store.header == before
    store.restore("s", CHANGELOG, one, one, 10, None, task_epoch=2)
    assert store.header.changelog[CHANGELOG] == 10


@pytest.mark.parametrize(
    ("group", "kept", "emptied"),
    [
        (10, {b"a": b"1"}, False),
        (20, {b"a": b"2"}, False),
        (15, {}, True),
        (40, {}, True),
        (None, {}, True),
    ],
    ids=["the batch was aborted", "it was committed", "somebody set the offset", "it ran elsewhere", "a reset"],
)
def test_without_a_changelog_the_groups_offsets_say_what_is_kept(driver, read_all, group, kept, emptied):
    driver.apply({b"a": b"1"})
    driver.apply({b"a": b"2"}, commit=False)
    store = driver.store
    assert store.take_over_at(2, {INPUT: group}) is emptied
    assert read_all(store) == kept
    assert store.header.positions == ({} if emptied else {INPUT: group})
    driver.task_epoch, driver.position, driver.committed = 2, group or 0, store.header.batch
    driver.apply({b"b": b"3"})
    # A worker of a Spark job that was cancelled comes late to the take-over, and changes nothing.
    assert not store.take_over_at(2, {INPUT: group})
    assert read_all(store) == kept | {b"b": b"3"}


def test_a_take_over_takes_nothing_back_once_its_batches_have_begun(driver, read_all):
    """A Spark job that was cancelled may have a worker that comes late to its take-over, beside the one sent again."""
    driver.store.take_over(2)
    driver.task_epoch = 2
    driver.apply({b"a": b"1"}, commit=False)
    assert driver.store.take_over(2) == []
    assert read_all(driver.store) == {b"a": b"1"}


def test_of_two_changelogs_the_furthest_marker_counts(store):
    none = pa.array([], pa.binary())
    store.restore("s", CHANGELOG, none, none, 3, Marker(7, {INPUT: 70}))
    store.restore("r", TopicPartition("r-changelog", 0), none, none, 3, Marker(6, {INPUT: 60}))
    assert store.header.batch == 7
    assert store.header.positions == {INPUT: 70}


def test_a_successor_that_numbers_its_batches_lower_is_followed(store):
    # Batches without a stateful leg count here, but write no marker by which a successor could go on from them.
    none = pa.array([], pa.binary())
    store.restore("s", CHANGELOG, none, none, 3, Marker(7, {INPUT: 70}))
    store.commit_known(20, {})
    store.restore("s", CHANGELOG, none, none, 6, Marker(8, {INPUT: 80}))
    assert store.header.positions == {INPUT: 80}
    assert store.header.batch == 20


def test_what_a_store_holds_is_undone_with_its_first_batch(driver):
    driver.apply({b"a": b"1"}, contents="sum(a)", commit=False)
    with pytest.raises(IncompatibleTopologyException, match=r"holds sum\(a\), but the pipeline now wants sum\(b\)"):
        driver.apply({b"a": b"1"}, leg="other", contents="sum(b)", commit=False)
    driver.task_epoch = 2
    driver.store.take_over(2)
    driver.apply({b"a": b"1"}, contents="sum(b)")
    driver.store.commit_known(1, {})
    assert driver.store.header.contents == {"s": "sum(b)"}
    with pytest.raises(IncompatibleTopologyException, match=r"holds sum\(b\), but the pipeline now wants sum\(a\)"):
        driver.apply({b"a": b"1"}, contents="sum(a)")


def test_what_a_store_holds_by_the_words_of_earlier_releases(driver):
    """They did not say by what its rows are spread."""
    driver.apply({b"a": b"1"}, contents="sum(a)")
    driver.store.commit_known(1, {})
    driver.apply({b"a": b"2"}, contents="sum(a), spread by k")
    driver.store.commit_known(2, {})
    assert driver.store.header.contents == {"s": "sum(a), spread by k"}
    for other, words in (
        ("sum(a), spread by the message key", "partitioned by k; the pipeline now partitions them by the message key"),
        ("sum(a)", r"holds sum\(a\), spread by k, but"),
        ("sum(b), spread by k", r"holds sum\(a\), spread by k, but"),
    ):
        with pytest.raises(IncompatibleTopologyException, match=words):
            driver.apply({b"a": b"3"}, contents=other)


def test_words_that_say_nothing_fit_none(driver):
    driver.apply({b"a": b"1"}, contents="")
    driver.store.commit_known(1, {})
    with pytest.raises(IncompatibleTopologyException, match=r"but the pipeline now wants sum\(a\)"):
        driver.apply({b"a": b"2"}, contents="sum(a)")


def test_stores_without_changelog_know_over_how_many_tasks_they_are_spread(store):
    store.claim("app", width=2)
    store.claim("app", width=2)
    store.claim("app")
    with pytest.raises(IncompatibleTopologyException, match="spread over 2 tasks, .* now needs 4"):
        store.claim("app", width=4)


# -- scanning ---------------------------------------------------------------------------------------------------------

EDGES = st.sampled_from([b"", b"\x00", b"a", b"a" * 478, b"a" * 479, b"a" * 480, b"a" * 510, b"a" * 511, b"a" * 512])
SOME_KEYS = EDGES | st.tuples(EDGES, st.binary(max_size=2)).map(b"".join) | st.binary(max_size=3)


@settings(max_examples=60, deadline=None)
@given(
    keys=st.sets(SOME_KEYS, max_size=12),
    bounds=st.lists(st.tuples(st.none() | SOME_KEYS, st.none() | SOME_KEYS), min_size=1, max_size=5),
    page=st.integers(1, 4),
)
def test_scan_gives_the_keys_between_its_bounds(tmp_path_factory, keys, bounds, page):
    path = tmp_path_factory.mktemp("scan")
    store = TaskStore.open(path / "0_0")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sparkrelay.state.lmdb.scan._BATCH_ROWS", page)
        ordered = pa.array(sorted(keys), pa.binary())
        store.restore("s", CHANGELOG, ordered, ordered, 1, None)
        for start, stop in bounds:
            between = sorted(k for k in keys if k >= (start or b"") and (stop is None or k < stop))
            batches = list(store.scan("s", start=start, stop=stop))
            found = [key for batch in batches for key in batch.column(0).to_pylist()]
            assert found == [value for batch in batches for value in batch.column(1).to_pylist()]
            assert sorted(found) == between
            short = [key for key in found if len(key) < 480]
            assert short == sorted(short)
    store.close(clean=False)
    shutil.rmtree(path)


# -- growth and full disks --------------------------------------------------------------------------------------------


def test_the_map_grows_up_to_its_limit_and_then_says_so(path, make_driver, read_all, monkeypatch):
    monkeypatch.setattr(environment, "_FIRST_MAP", 1 << 20)
    store = TaskStore.open(path, map_limit=8 << 20)
    driver = make_driver(store)
    kept = {}

    def fill():
        for number in range(1000):
            rows = {b"%d-%d" % (number, i): b"x" * 1000 for i in range(200)}
            driver.apply(rows)
            kept.update(rows)

    with pytest.raises(
        StoreFullException,
        match=r"^task 0_1: .* has \d+ bytes and has reached store.max.bytes=8388608\. .* Raise store.max.bytes",
    ):
        fill()
    assert len(kept) > 2000
    assert read_all(store) == kept
    assert store.header.batch == driver.committed - 1
    driver.apply({b"0-0": None})
    store.close(clean=False)


def test_a_full_disk_changes_nothing(path, run_child, make_driver, read_all):
    store = TaskStore.open(path)
    make_driver(store).apply({b"key00000": b"before"})
    store.close(clean=False)
    limited = """
    import resource, signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
    """.replace("\n    ", "\n")
    answer = run_child(limited + OTHER_PROCESS, path, 1, 2, 5000, 100)
    assert answer.startswith("StoreFullException task 0_1: the disk below"), answer
    taken = (path / "data.mdb").stat().st_blocks * 512
    assert f"The state has {taken} bytes, the disk has " in answer
    assert "Nothing that was committed is lost. Free some space or move state.dir" in answer
    store = TaskStore.open(path)
    assert read_all(store) == {b"key00000": b"before"}
    assert [entry.batch for entry in store.header.journals] == [1]
    store.close(clean=False)
    assert run_child(OTHER_PROCESS, path, 1, 2, 5000, 100) == "4999"


# -- other processes --------------------------------------------------------------------------------------------------


def test_two_processes_take_turns(path, driver, run_child, read_all):
    driver.apply({b"key00000": b"mine"})
    assert run_child(OTHER_PROCESS, path, 1, 2, 3, 1) == "2"
    assert read_all(driver.store) == {b"key00000": b"v", b"key00001": b"v", b"key00002": b"v"}
    driver.committed, driver.position = 2, 20
    assert driver.apply({b"key00001": b"mine again"}).emitted.column(0).to_pylist() == [b"v"]


@pytest.mark.long
def test_a_process_follows_when_another_has_grown_the_map(path, make_driver, run_child, monkeypatch):
    monkeypatch.setattr(environment, "_FIRST_MAP", 1 << 20)
    driver = make_driver(TaskStore.open(path))
    driver.apply({b"key00000": b"mine"})
    assert run_child(OTHER_PROCESS, path, 1, 2, 60_000, 1000) == "59999"
    assert driver.store.rows("s") == 60_000
    assert driver.store._environment.map_size > environment._FIRST_MAP
    driver.committed, driver.position = 2, 20
    driver.apply({b"key00000": b"mine again"})
    driver.store.close(clean=False)


def test_a_process_in_an_old_epoch_is_refused(path, driver, run_child, read_all):
    driver.apply({b"key00000": b"mine"})
    driver.store.commit_known(1, {})
    driver.store.take_over(2)
    answer = run_child(OTHER_PROCESS, path, 1, 2, 3, 1)
    assert answer.startswith("StoreOutOfStepException"), answer
    assert "sent under task epoch 1, the store was taken over under 2" in answer
    assert read_all(driver.store) == {b"key00000": b"mine"}


def test_who_has_a_wiped_store_open_is_refused(driver, path):
    driver.apply({b"a": b"1"})
    wipe(path)
    assert not path.exists()
    with pytest.raises(StoreOutOfStepException, match="was wiped by another process"):
        driver.apply({b"a": b"2"})
    again = None
    driver.store.close(clean=False)
    again = TaskStore.open(path)
    assert again.rows("s") == 0
    again.close(clean=False)


def test_a_forked_child_has_to_open_its_own(store):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            store.rows("s")
        except StateStoreException as error:
            os.write(writer, str(error).encode())
        finally:
            store.close(clean=False)
            os._exit(0)
    os.waitpid(child, 0)
    assert b"is used by its forked child" in os.read(reader, 1000)
    os.close(reader)
    os.close(writer)
    assert store.rows("s") == 0


def test_a_file_that_is_no_store_must_be_rebuilt(path):
    TaskStore.open(path).close(clean=False)
    (path / "data.mdb").write_bytes(b"\xff" * 16384)
    with pytest.raises(StoreCorruptedException, match="must be rebuilt from its changelog"):
        TaskStore.open(path)


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StateStoreException, match=r"0_1 cannot be opened .* state.dir must be a directory"):
        TaskStore.open(tmp_path / "file" / "0_1")


def test_a_long_key_is_spelt_and_a_reserved_one_is_nothing_special(driver, read_all):
    rows = {b"x" * 600: b"1", b"x" * 600 + b"y": b"2", MARKER_KEY: b"3"}
    driver.apply(rows, commit=False)
    assert read_all(driver.store) == rows
    driver.store.take_over(2)
    assert read_all(driver.store) == {}


def test_a_full_disk_while_a_clean_store_is_marked_is_named(path, make_driver, run_child, read_all):
    store = TaskStore.open(path)
    make_driver(store).apply({b"a": b"1"})
    store.close(clean=True)
    limited = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
"""
    assert run_child(limited + OTHER_PROCESS, path, 1, 2, 5, 1).startswith(("StoreFull", "StateStore"))
    store = TaskStore.open(path)
    assert read_all(store) == {b"a": b"1"}
    store.close(clean=False)


@pytest.mark.parametrize("version", [2, 9], ids=["older", "newer"])
def test_a_store_of_another_layout_is_named(path, make_driver, version):
    store = TaskStore.open(path)
    make_driver(store).apply({b"a": b"1"})
    data = bytes([version]) + store.header.encode()[1:]
    store._environment.write(lambda t: t.put(b"header", data, db=store._environment.database("#meta").handle))
    with pytest.raises(StoreCorruptedException, match=rf"in {path} has version {version}, this SparkRelay reads \[7\]"):
        store.claim("app")
    store.close(clean=False)


SOURCE = TopicPartition("users", 0)


def test_a_source_that_is_restored_is_what_the_state_has_seen(store):
    keys, values = pa.array([b"a", b"b"], pa.binary()), pa.array([b"1", b"2"], pa.binary())
    store.restore("users", SOURCE, keys, values, 5, Marker(0, {}, "rows"), is_source=True)
    header = store.header
    assert (header.positions, header.changelog, header.contents) == ({SOURCE: 5}, {SOURCE: 5}, {"users": "rows"})
    store.restore_reached(SOURCE, 7, is_source=True)
    assert (store.header.positions, store.header.changelog) == ({SOURCE: 7}, {SOURCE: 7})
    assert store.restore_anew("users", SOURCE, 9, is_source=True)
    assert (store.header.positions, store.header.changelog, store.rows("users")) == ({SOURCE: 9}, {SOURCE: 9}, 0)


@pytest.mark.parametrize(("end", "emptied"), [(5, False), (9, False), (None, False), (4, True), (0, True)])
def test_a_table_that_has_more_than_the_group_has_read_is_emptied(store, end, emptied):
    keys, values = pa.array([b"a", b"b"], pa.binary()), pa.array([b"1", b"2"], pa.binary())
    store.restore("users", SOURCE, keys, values, 5, Marker(0, {}, "rows"), is_source=True)
    store.restore("s", CHANGELOG, keys, values, 3, Marker(7, {INPUT: 70}))
    assert store.require_source("users", SOURCE, end, contents="rows") == (5 if emptied else None)
    header = store.header
    assert store.rows("users") == (0 if emptied else 2)
    assert (SOURCE in header.positions, SOURCE in header.changelog) == (not emptied,) * 2
    assert store.rows("s") == 2
    assert (header.positions[INPUT], header.changelog[CHANGELOG]) == (70, 3)


def test_a_table_that_came_of_another_changelog_is_emptied(store):
    keys, values = pa.array([b"a", b"b"], pa.binary()), pa.array([b"1", b"2"], pa.binary())
    store.restore("users", TopicPartition("users-changelog", 0), keys, values, 3, Marker(7, {SOURCE: 70}, "rows"))
    assert store.require_source("users", SOURCE, None, contents="rows") is None
    assert (store.rows("users"), store.header.positions, store.header.contents) == (0, {}, {})


def test_a_source_is_required_of_its_owner_alone(store):
    store.take_over(2)
    with pytest.raises(StoreOutOfStepException, match="comes late"):
        store.require_source("users", SOURCE, 0, contents="rows", task_epoch=1)


def test_a_table_of_other_columns_is_emptied_and_read_anew(store):
    one = pa.array([b"a"], pa.binary())
    store.restore("users", SOURCE, one, one, 5, Marker(0, {}, "rows"), is_source=True)
    assert store.require_source("users", SOURCE, 9, contents="other rows") is None
    assert (store.rows("users"), store.header.changelog, store.header.positions) == (0, {}, {})


def test_what_is_first_in_a_range_is_found(driver):
    store = driver.store
    driver.apply({key: key * 2 for key in (b"a1", b"a3", b"b2", b"c")})
    starts, stops = [b"a", b"a2", b"a4", b"b", b"b3", b"c", b"d"], [b"b", b"b", b"b", b"b3", b"c", b"d", b"e"]
    found = []
    first = store.look("s", lambda view: found.append(view.firsts(starts, stops)) or found[0][0], contents="").values
    assert first.to_pylist() == [b"a1", b"a3", None, b"b2", None, b"c", None]
    assert found[0][1].to_pylist() == [b"a1a1", b"a3a3", None, b"b2b2", None, b"cc", None]
    some = store.look("s", lambda view: view.between(b"a", b"c", 2).column("key"), contents="").values
    assert some.to_pylist() == [b"a1", b"a3"]


# -- after a batch ----------------------------------------------------------------------------------------------------


def test_what_a_batch_has_left_is_read_until_it_is_taken_back(driver, read_all, monkeypatch):
    monkeypatch.setattr(view, "_UNDO_BYTES", 1)
    held = {b"key%d" % number: b"v" * number for number in range(300)}
    driver.apply(held)
    deleted = pa.array(sorted(held)[:200])
    applied = driver.store.change_batch(
        "leg",
        "s",
        batch=driver.stamp(),
        operate=lambda seen: view.Changes.of(seen, deleted, pa.nulls(200, pa.binary()), None),
    )
    left = driver.store.after(applied, task_epoch=1)
    pieces = left.before()
    first = next(pieces)
    assert first.num_rows < 200
    before = {**dict(zip(*first.to_pydict().values(), strict=True))}
    for piece in pieces:
        before |= dict(zip(*piece.to_pydict().values(), strict=True))
    assert before == {key: held[key] for key in deleted.to_pylist()}
    kept = pa.array(sorted(held)[200:])
    assert left.get(kept).to_pylist() == [held[key] for key in kept.to_pylist()]
    assert list(left.over()) == []
    with pytest.raises(StoreCorruptedException, match="1 of 2 rows that batch 2 has found in store 's' are missing"):
        left.get(pa.concat_arrays([kept[:1], deleted[:1]]))
    half_read = left.before()
    next(half_read)
    driver.store.take_over(2)
    assert read_all(driver.store) == held
    for late in (lambda: left.get(kept), lambda: next(half_read)):
        with pytest.raises(StoreOutOfStepException, match="task epoch 1 comes late"):
            late()
    driver.store.take_over(1)
    with pytest.raises(StoreOutOfStepException, match="batch 2 of leg 'leg', try 1, was taken back"):
        left.get(kept)


def test_many_changes_are_put_in_several_parts(path, driver, read_all, monkeypatch):
    monkeypatch.setattr(store, "_KEYS_AT_ONCE", 10)
    begun = []
    monkeypatch.setattr(driver.store, "_change", noted(driver.store._change, begun))
    held = {b"%d" % number: b"first" for number in range(35)}
    driver.apply(held)
    assert len(begun) == 4
    assert read_all(driver.store) == held
    changed = dict.fromkeys(held, b"second")
    applied = driver.apply(changed, commit=False)
    assert applied.entry == driver.store.header.journals[-1]
    assert (applied.entry.keys, applied.entry.complete) == (35, True)
    assert dict(zip(applied.keys.to_pylist(), applied.values.to_pylist(), strict=True)) == dict.fromkeys(
        held, b"second"
    )
    reader = StoreReader.of(driver.store)
    found = reader.read("s", lambda seen: seen.between(), committed=1)
    assert dict(zip(*found.to_pydict().values(), strict=True)) == held
    driver.store.take_over(2)
    assert read_all(driver.store) == held
    driver.store.close(clean=True)
    after = TaskStore.open(path)
    assert after.header.batch == 1
    after.close(clean=True)


def test_an_owner_who_is_replaced_between_two_parts_puts_no_more(driver, read_all, monkeypatch):
    monkeypatch.setattr(store, "_KEYS_AT_ONCE", 1)
    driver.apply({b"a": b"1", b"b": b"1"})
    replaced = iter([False, True])
    change = driver.store._change

    def change_after_a_take_over(changed):
        if next(replaced):
            driver.store._change = change
            driver.store.take_over(2)
        return change(changed)

    driver.store._change = change_after_a_take_over
    with pytest.raises(StoreOutOfStepException, match="task epoch 1 comes late"):
        driver.apply({b"a": b"2", b"b": b"2"}, commit=False)
    assert read_all(driver.store) == {b"a": b"1", b"b": b"1"}
    assert driver.store.header.journals == ()


def test_a_share_that_is_not_complete_counts_as_none(driver, monkeypatch):
    """Though it ends at the group's offsets, as one does that has read nothing."""
    monkeypatch.setattr(store, "_KEYS_AT_ONCE", 1)
    driver.apply({b"a": b"1", b"b": b"1"})
    last = iter([False, True])
    change = driver.store._change

    def change_once(changed):
        if next(last):
            raise KeyboardInterrupt
        return change(changed)

    driver.store._change = change_once
    ranges = {INPUT: (10, 10)}
    with pytest.raises(KeyboardInterrupt):
        driver.apply({b"a": b"2", b"b": b"2"}, commit=False, ranges=ranges)
    driver.store._change = change
    assert driver.store.journal_of("leg", number=2, tries=1) is None
    assert not driver.store.take_over_at(2, {INPUT: 10})
    assert driver.store.read("s", pa.array([b"a", b"b"])).to_pylist() == [b"1", b"1"]


def noted(function, calls):
    def called(*arguments):
        calls.append(arguments)
        return function(*arguments)

    return called


def fill(store, name="s", rows=300):
    keys = pa.array([b"%04d" % number for number in range(rows)], pa.binary())
    store.restore(name, TopicPartition(f"{name}-changelog", 0), keys, keys, rows, None)


def test_what_another_instance_did_not_close_is_read_through_a_little_at_a_time(path, monkeypatch):
    monkeypatch.setattr(restorable, "_READ_AT_ONCE", 100)
    store = TaskStore.open(path)
    store.opened_by("first")
    fill(store)
    fill(store, "t")
    assert store.read_through(pytest.fail), "the instance itself wrote it"
    store.opened_by("second")
    assert store.header.suspect == {"s", "t"}
    moments = iter([False, True])
    assert not store.read_through(lambda: next(moments))
    # It is not forgotten by a close, nor by changes in between.
    store.close(clean=True)
    store = TaskStore.open(path)
    store.opened_by("third")
    store.restore("s", CHANGELOG, pa.array([b"0001", b"0200"]), pa.array([b"x", None], pa.binary()), 301, None)
    assert store.header.suspect == {"s", "t"}
    assert store.read_through(lambda: False)
    assert store.header.suspect == set()
    store.close(clean=True)
    store = TaskStore.open(path)
    store.opened_by("fourth")
    assert store.read_through(pytest.fail), "it was closed"
    store.close(clean=False)


def test_rows_that_are_gone_are_found_by_their_count_and_older_ones_by_their_sum(store):
    fill(store)
    table = store._table("s")
    store.environment.write(lambda t: t.delete(b"0007", db=table.handle))
    with pytest.raises(StoreCorruptedException, match="store 's' was left with 300 rows, and has 299"):
        store.look("s", pytest.fail, contents="")
    store.environment.write(lambda t: t.put(b"0007", table.seal(b"0007", b"older"), db=table.handle))
    store.opened_by("another")
    with pytest.raises(
        StoreCorruptedException,
        match="rows of table 's:s' are missing, or have reverted.* Results may be wrong .* reset",
    ):
        store.read_through(lambda: False)


def test_batches_come_to_every_row_in_the_end(store, driver):
    for number in range(8):
        driver.apply({b"%03d" % row: b"%d" % number for row in range(700)})
    table = store._table("s")
    store.environment.write(lambda t: t.put(b"650", table.seal(b"650", b"older"), db=table.handle))

    def go_on():
        for _ in range(100):
            driver.apply({b"001": b"1"})

    with pytest.raises(StoreCorruptedException, match="have reverted to an earlier state"):
        go_on()


def test_a_store_without_its_header_is_damaged_if_it_has_rows(store):
    assert store.header.batch == 0
    fill(store)
    store.environment.write(lambda t: t.delete(b"header", db=store._environment.database("#meta").handle))
    with pytest.raises(StoreCorruptedException, match="it has no header, and table 's:s' has rows"):
        store.take_over(1)


def test_a_row_that_a_restore_replaces_and_that_has_no_checksum_is_damage(store):
    fill(store)
    table = store._table("s")
    store.environment.write(lambda t: t.put(b"0007", b"abc", db=table.handle))
    with pytest.raises(StoreCorruptedException, match="a row of table 's:s' has no checksum"):
        store.restore("s", CHANGELOG, pa.array([b"0007"]), pa.array([b"x"]), 301, None)


@pytest.mark.parametrize("how", ["the batch again", "a take-over"])
def test_rows_that_are_gone_are_missed_though_a_batch_is_taken_back(store, driver, how):
    driver.apply({b"%d" % number: b"1" for number in range(9)})
    driver.apply({b"9": b"1"}, commit=False)
    table = store._table("s")
    store.environment.write(lambda t: t.delete(b"7", db=table.handle))
    if how == "a take-over":
        driver.task_epoch += 1
        store.take_over(driver.task_epoch)
    with pytest.raises(StoreCorruptedException, match="was left with 9 rows, and has 8"):
        driver.apply({b"7": b"1"}, tries=2 if how == "the batch again" else 1)
