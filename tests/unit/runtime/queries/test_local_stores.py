"""Which copies of a store answer a query: by role, lag and partition."""

import contextlib
import json
from dataclasses import replace

import pyarrow as pa
import pytest
from tests.doubles.state_steps import NEWEST_ROWS, state_spec, table_step
from tests.unit.state.conftest import Driver

from sparkrelay import hidden_columns
from sparkrelay.errors import (
    InvalidStateStorePartitionException,
    StateStoreException,
    StateStoreNotAvailableException,
)
from sparkrelay.operators.stored_rows import StoredColumns
from sparkrelay.operators.table.reading import StoreRead
from sparkrelay.runtime.queries.local_stores import ACTIVE, RESTORING, STANDBY, LocalStores, LocalTask
from sparkrelay.runtime.queries.query import Query, QueryScope
from sparkrelay.state import TaskStore
from sparkrelay.state.home.removal import wipe
from sparkrelay.state.reader import StoreReader
from sparkrelay.types import TaskId

SPEC = state_spec([("user", pa.string())], [], [("n", pa.int64())], (), partitioned_by=("user",))
ANYWHERE = state_spec([("user", pa.string())], [], [("n", pa.int64())], ())
WIDTH = 4


class Stores:
    """A pipeline with one store."""

    def __init__(self, spec):
        self.spec = lambda _: spec


def task(partition, role=ACTIVE, lag=0, rows=(), error=None):
    """Return a task, whose store says so."""

    def read(spec, reading):
        assert (reading.committed is None) == (role != ACTIVE)
        if error is not None:
            raise error
        found = pa.RecordBatch.from_pylist([{"user": user, "n": n} for user, n in rows], spec.layout.columns)
        return StoreRead(found, places=(found.num_rows - 1,))

    committed = 7 if role == ACTIVE else None
    return LocalTask(TaskId(0, partition), f"0_{partition}", role, committed, lag=lag, width=WIDTH, read=read)


def stores(*tasks, spec=SPEC):
    return LocalStores(lambda: Stores(spec), lambda _: tasks)


def row(local, keys, user, scope, **more):
    ((_, read),) = local.answer(Query(keys, scope, "row", key=keys.columns(user), **more))
    return read


def place(user):
    local = stores()
    return local.keys("counts").partition(local.keys("counts").columns(user), WIDTH)


def get(local, user, **scope):
    keys = local.keys("counts")
    return row(local, keys, user, QueryScope(**scope)).rows.to_pylist()


def every(local, **scope):
    limit = scope.pop("limit", None)
    found = local.answer(Query(local.keys("counts"), QueryScope(**scope), "rows", limit=limit))
    return [row["user"] for _, read in found for row in read.rows.to_pylist()]


ADA = [("ada", 3)]
ROW = [{"user": "ada", "n": 3}]


def test_the_active_task_answers():
    home = place("ada")
    assert get(stores(task(home, rows=ADA)), "ada") == ROW
    assert get(stores(task(home)), "ada") == []


def test_another_partitioner_s_key_is_found():
    home = place("ada")
    elsewhere = (home + 1) % WIDTH
    assert get(stores(task(home), task(elsewhere, rows=ADA)), "ada") == ROW
    with pytest.raises(InvalidStateStorePartitionException) as raised:
        get(stores(task(elsewhere, rows=ADA)), "ada")
    assert raised.value.partition == home
    assert get(stores(task(elsewhere, rows=ADA)), "ada", partitions=frozenset({elsewhere})) == ROW


def test_a_key_of_any_partition_is_missing_only_where_all_are_here():
    some = [task(partition) for partition in range(WIDTH - 1)]
    with pytest.raises(InvalidStateStorePartitionException, match="ask the other instances"):
        get(stores(*some, spec=ANYWHERE), "ada")
    assert get(stores(*some, task(WIDTH - 1), spec=ANYWHERE), "ada") == []
    assert get(stores(task(1), task(2, rows=ADA), spec=ANYWHERE), "ada") == ROW


@pytest.mark.parametrize(
    ("role", "lag", "scope", "answers"),
    [
        (STANDBY, 0, {}, InvalidStateStorePartitionException),
        (RESTORING, 0, {}, StateStoreNotAvailableException),
        (STANDBY, 9, {"stale": True}, True),
        (STANDBY, None, {"stale": True}, True),
        (RESTORING, 9, {"stale": True}, True),
        (STANDBY, 9, {"stale": True, "max_lag": 9}, True),
        (STANDBY, 10, {"stale": True, "max_lag": 9}, StateStoreNotAvailableException),
        (STANDBY, None, {"stale": True, "max_lag": 9}, StateStoreNotAvailableException),
        (STANDBY, 0, {"max_lag": 9}, InvalidStateStorePartitionException),
    ],
)
def test_copies_answer_where_they_may(role, lag, scope, answers):
    local = stores(task(place("ada"), role, lag, ADA))
    if answers is True:
        assert get(local, "ada", **scope) == ROW
        assert every(local, **scope) == ["ada"]
    else:
        with pytest.raises(answers):
            get(local, "ada", **scope)


def test_a_copy_of_which_nobody_knows_what_it_lacks_cannot_say_that_a_key_is_missing():
    home = place("ada")
    with pytest.raises(StateStoreNotAvailableException, match="not known"):
        get(stores(task(home, STANDBY, None, [])), "ada", stale=True)
    assert get(stores(task(home, STANDBY, 9, [])), "ada", stale=True) == []
    unknown = task((home + 1) % WIDTH, STANDBY, None, [])
    others = [task(partition) for partition in range(WIDTH) if partition != unknown.id.partition]
    with pytest.raises(StateStoreNotAvailableException, match="not known"):
        get(stores(*others, unknown, spec=ANYWHERE), "ada", stale=True)
    local = stores(task(home, STANDBY, None, []))
    keys = local.keys("counts")
    with pytest.raises(StateStoreNotAvailableException, match="not known"):
        local.answer(Query(keys, QueryScope(stale=True), "windows", key=keys.columns("ada")))


def test_of_several_copies_the_one_that_lacks_most_says_that_there_is_no_such_key():
    copies = [task(partition, *([STANDBY, 9] if partition == 2 else [])) for partition in range(WIDTH)]
    local = stores(*copies, spec=ANYWHERE)
    keys = local.keys("counts")
    ((task_of_row, _),) = local.answer(Query(keys, QueryScope(stale=True), "row", key=keys.columns("ada")))
    assert task_of_row.lag == 9


def test_of_two_copies_the_best_one_answers():
    """An instance with two executors may have both."""
    home = place("ada")
    old, new = task(home, STANDBY, 5, [("ada", 1)]), task(home, rows=ADA)
    for copies in ((old, new), (new, old)):
        assert get(stores(*copies), "ada", stale=True) == ROW
        assert every(stores(*copies), stale=True) == ["ada"]
    fresh = task(home, STANDBY, 1, ADA)
    assert get(stores(old, fresh), "ada", stale=True) == ROW
    unknown = task(home, RESTORING, None, [])
    assert get(stores(unknown, fresh), "ada", stale=True) == ROW


def test_many_rows_are_those_of_the_tasks_that_run_here():
    a, b, copy = task(0, rows=[("a", 1)]), task(2, rows=[("b", 1)]), task(1, STANDBY, rows=[("c", 1)])
    assert every(stores(b, a, copy)) == ["a", "b"]
    assert every(stores(b, a, copy), stale=True) == ["a", "c", "b"]
    assert every(stores(b, a, copy), limit=1) == ["a"]
    assert every(stores(b, a, copy), partitions=frozenset({2})) == ["b"]
    with pytest.raises(InvalidStateStorePartitionException, match="not partition 3"):
        every(stores(b, a, copy), partitions=frozenset({2, 3}))
    with pytest.raises(InvalidStateStorePartitionException, match="standby copies"):
        every(stores(b, a, copy), partitions=frozenset({1, 2}))
    with pytest.raises(StateStoreNotAvailableException, match=r"0_3 \(restoring\)"):
        every(stores(b, a, task(3, RESTORING)))
    with pytest.raises(InvalidStateStorePartitionException, match="no partition"):
        every(stores())


def test_a_store_that_cannot_be_read_is_not_available():
    local = stores(task(place("ada"), error=StateStoreException("it is being made anew")))
    with pytest.raises(StateStoreNotAvailableException, match="being made anew"):
        get(local, "ada")


@pytest.mark.parametrize("scope", [{"isolation": "dirty"}, {"max_lag": -1}])
def test_what_no_scope_is(scope):
    with pytest.raises(ValueError, match="must be"):
        QueryScope(**scope)


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("held", [0, 1, 7])
def test_pages_have_every_row_of_a_partition_once(limit, held):
    local = stores(paged_task(2, held))
    keys, scope = local.keys("counts"), QueryScope(partitions=frozenset({2}))
    found, after = [], b""
    while after is not None:
        ((_, page),) = local.answer(Query(keys, scope, "page", after=after, limit=limit))
        assert page.rows.num_rows <= limit
        found += page.rows.column("n").to_pylist()
        after = page.following
    assert found == list(range(held))


def test_a_page_of_no_rows_has_the_columns():
    local, scope = stores(paged_task(2, 7)), QueryScope(partitions=frozenset({2}))
    ((_, page),) = local.answer(Query(local.keys("counts"), scope, "page", limit=0))
    assert (page.rows.num_rows, page.rows.schema.names, page.following) == (0, ["user", "n"], None)


def test_each_reading_says_whose_copy_is_meant():
    """Between two pages the task may fall out of service, and its copy be emptied."""
    readings = []
    local = stores(paged_task(2, 7, readings))
    keys = local.keys("counts")
    local.answer(Query(keys, QueryScope(partitions=frozenset({2})), "rows"))
    row(local, keys, "user1", QueryScope(partitions=frozenset({2})))
    assert [one.what for one in readings] == ["page"] * 3 + ["rows"]
    assert {one.task_epoch for one in readings} == {5}


def paged_task(partition, held, readings=None):
    """Return a task with so many rows, whose store gives at most three at a time."""

    def read(spec, reading):
        if readings is not None:
            readings.append(reading)
        if reading.what == "rows":
            return StoreRead(pa.RecordBatch.from_pylist([], spec.layout.columns), places=(-1,))
        users = [f"user{number}" for number in range(held)]
        behind = [number for number, user in enumerate(users) if user.encode() >= reading.start]
        some = behind[: min(3, reading.most or 3)]
        rows = [{"user": users[number], "n": number} for number in some]
        following = users[some[-1]].encode() + b"\0" if some and some[-1] < held - 1 else None
        return StoreRead(pa.RecordBatch.from_pylist(rows, spec.layout.columns), following)

    return LocalTask(TaskId(0, partition), f"0_{partition}", ACTIVE, 7, task_epoch=5, width=WIDTH, read=read)


def test_what_is_gone_from_the_disk_is_closed_in_the_end(tmp_path):
    """A file that was removed keeps its disk space for as long as it is open; no other store need be opened for it."""
    directories = [tmp_path / "0_0", tmp_path / "0_1"]
    for directory in directories:
        TaskStore.open(directory).close(clean=False)
    tasks = [LocalTask(TaskId(0, n), str(directory), ACTIVE, 0, width=2) for n, directory in enumerate(directories)]
    now = [0.0]
    table = table_step([("user", pa.string())], [], [("n", pa.int64())], NEWEST_ROWS, partitioned_by=("user",))
    local = LocalStores(lambda: Stores(table), lambda _: tasks, clock=lambda: now[0])
    keys = local.keys("counts")

    def read():
        assert local.answer(Query(keys, QueryScope(), "rows"))
        for task in tasks:
            row(local, keys, "ada", QueryScope(partitions=frozenset({task.id.partition})))
        return {name for name, _ in local._shared} | set(local._readers)

    assert read() == set(map(str, directories))
    wipe(directories[1])
    tasks.pop()
    now[0] = 29.0
    assert read() == set(map(str, directories))
    now[0] = 30.0
    assert read() == {str(directories[0])}
    local.close()


def test_a_row_as_json_is_that_of_the_committed_batch(tmp_path):
    """Also where it was asked for before, and is known."""
    kept = pa.schema([("n", pa.int64())])
    spec = table_step([("user", pa.string())], [], kept, NEWEST_ROWS, partitioned_by=("user",))
    times, numbers = pa.array([0, 0]), pa.array([1, 2])
    one, two = StoredColumns(kept).values(pa.table({"n": numbers, hidden_columns.TIMESTAMP: times})).to_pylist()
    with contextlib.ExitStack() as stack:
        store = TaskStore.open(tmp_path / "0_0")
        stack.callback(store.close, clean=False)
        driver = Driver(store, name=spec.store)
        tasks = [LocalTask(TaskId(0, 0), str(store.path), ACTIVE, 0, width=1)]
        local = LocalStores(lambda: Stores(spec), lambda _: tasks)
        # A process has an environment once.
        local._readers[str(store.path)] = StoreReader.of(store)
        keys = local.keys(spec.store)

        def texts():
            tasks[0] = replace(tasks[0], committed=driver.committed)
            both = [QueryScope(), QueryScope(isolation="read_uncommitted")] * 2
            found = [row(local, keys, "ada", scope, as_json=True) for scope in both]
            assert [found[0], found[1]] == found[2:]
            rows = [row(local, keys, "ada", scope).rows.to_pylist() for scope in both[:2]]
            assert [[json.loads(answer.text)] if answer.row_count else [] for answer in found[:2]] == rows
            return [answer.text and json.loads(answer.text)["n"] for answer in found[:2]]

        assert texts() == [None, None]
        seen = []
        for value in (one, two, None, one):
            driver.apply({b"ada": value}, commit=False)
            seen.append(texts())
            driver.committed += 1
            driver.position += 10
            seen.append(texts())
    assert seen == [[None, 1], [1, 1], [1, 2], [2, 2], [2, None], [None, None], [None, 1], [1, 1]]
