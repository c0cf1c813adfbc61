"""Questions that wait for each other are answered by one reading, and each gets its own."""

import threading
from collections import deque

import pyarrow as pa
import pytest
from tests.waiting import LONG, wait_until

from sparkrelay.errors import StateStoreException, StoreCorruptedException
from sparkrelay.operators.table.reading import StoreRead
from sparkrelay.runtime.queries import shared_reads
from sparkrelay.runtime.queries.shared_reads import SharedReads

SCHEMA = pa.schema([("user", pa.string())])
ROWS = pa.schema([*SCHEMA, ("n", pa.int64())])


def key(user):
    return pa.RecordBatch.from_pylist([{"user": user}], SCHEMA)


class Store:
    """Has a row for each user but `nobody`, and holds the first reading up until it is let go."""

    def __init__(self, *, held=False):
        self.readings, self.reading, self.go = [], threading.Event(), threading.Event()
        if not held:
            self.go.set()

    def read(self, keys):
        users = keys.column("user").to_pylist()
        self.readings.append(users)
        self.reading.set()
        assert self.go.wait(LONG)
        if "broken" in users:
            raise StateStoreException("it is gone")
        if "damaged" in users:
            raise StoreCorruptedException("a value is none")
        if "odd" in users:
            raise ZeroDivisionError
        if "interrupted" in users:
            raise KeyboardInterrupt
        there = [user for user in users if user != "nobody"]
        rows = pa.RecordBatch.from_pylist([{"user": user, "n": len(user)} for user in there], ROWS)
        places = tuple(there.index(user) if user in there else -1 for user in users)
        return StoreRead(rows, places=places)


class Asking(threading.Thread):
    """Asks for one key on a thread of its own."""

    def __init__(self, shared, store, user, *, as_of=1, as_json=False):
        super().__init__(daemon=True)
        self.found = self.error = None
        self.ask = lambda: shared.row(key(user), as_of, store.read, as_json=as_json)
        self.start()

    def run(self):
        try:
            self.found = self.ask()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.error = error

    def rows(self):
        self.join(LONG)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error
        return [] if self.found.rows is None else self.found.rows.to_pylist()


def asked(shared, store, user, **how):
    """Ask for a key behind those that are asked for already."""
    before = len(shared._waiting)
    one = Asking(shared, store, user, **how)
    wait_until(lambda: len(shared._waiting) > before, "it is not asked for")
    return one


def ask_together(*users, first="first", batches=None, **how):
    """Ask for a key, and for others while that is read; return who asks for these, and the store."""
    shared, store = SharedReads(), Store(held=True)
    leader = Asking(shared, store, first)
    assert store.reading.wait(LONG)
    asking = []
    for user, as_of in zip(users, batches or [1] * len(users), strict=True):
        asking.append(asked(shared, store, user, as_of=as_of, **how))
    store.go.set()
    leader.join(LONG)
    return asking, store


def test_who_comes_alone_is_read_alone():
    shared, store = SharedReads(), Store()
    assert shared.row(key("ada"), 1, store.read).rows.to_pylist() == [{"user": "ada", "n": 3}]
    assert shared.row(key("ada"), 1, store.read).text is None
    assert shared.row(key("nobody"), 1, store.read).rows is None
    assert store.readings == [["ada"], ["ada"], ["nobody"]]


def test_who_waits_is_read_with_the_others():
    asking, store = ask_together("ada", "nobody", "bob", "ada")
    assert [one.rows() for one in asking] == [
        [{"user": "ada", "n": 3}], [], [{"user": "bob", "n": 3}], [{"user": "ada", "n": 3}],
    ]  # fmt: skip
    assert store.readings == [["first"], ["ada", "nobody", "bob", "ada"]]


def test_rows_are_written_where_they_are_wanted():
    asking, _ = ask_together("ada", "nobody", "bob", as_json=True)
    assert [one.rows() for one in asking] == [[], [], []]
    assert [one.found.text for one in asking] == [b'{"user":"ada","n":3}', None, b'{"user":"bob","n":3}']


@pytest.mark.parametrize("raw", [False, True])
def test_who_wants_no_text_among_others_gets_rows(raw):
    """A text in the place of an Arrow stream would be taken for the answer."""
    table = Table(held=True) if raw else Store(held=True)
    shared = SharedReads(table.shown if raw else None)
    leader = Asking(shared, table, "first")
    assert table.reading.wait(LONG)
    asking = [asked(shared, table, user, as_json=user == "ada") for user in ("ada", "bob")]
    table.go.set()
    assert [one.rows() for one in (leader, *asking)][::2] == [[{"user": "first", "n": 5}], [{"user": "bob", "n": 3}]]
    assert [one.found.text for one in asking] == [b'{"user":"ada","n":3}', None]


class Table(Store):
    """Gives ``key, value`` of the store; a value is the row's number."""

    def __init__(self, *, held=False):
        super().__init__(held=held)
        self.shows, self.numbers = [], {}

    def read(self, keys):
        found = super().read(keys)
        users = found.rows.column("user").to_pylist()
        values = [str(self.numbers.get(user, len(user))).encode() for user in users]
        stored = pa.record_batch([pa.array([user.encode() for user in users]), pa.array(values)], ["key", "value"])
        return StoreRead(stored, places=found.places)

    def shown(self, stored):
        users = [key.decode() for key in stored.column("key").to_pylist()]
        self.shows.append(users)
        numbers = [int(value) for value in stored.column("value").to_pylist()]
        if -1 in numbers:
            raise StoreCorruptedException("a value is none")
        return pa.record_batch([pa.array(users), pa.array(numbers, pa.int64())], schema=ROWS)


def texts(shared, table, *users):
    return [shared.row(key(user), number, table.read, as_json=True).text for number, user in enumerate(users)]


def test_a_row_that_has_not_changed_is_not_written_again():
    table = Table()
    shared = SharedReads(table.shown)
    ada, bob = b'{"user":"ada","n":3}', b'{"user":"bob","n":3}'
    assert texts(shared, table, "ada", "bob", "ada", "nobody") == [ada, bob, ada, None]
    assert table.shows == [["ada"], ["bob"]]
    table.numbers["ada"] = 4
    assert texts(shared, table, "ada", "bob") == [b'{"user":"ada","n":4}', bob]
    table.numbers["ada"] = 3
    assert texts(shared, table, "ada") == [ada]
    assert table.shows == [["ada"], ["bob"], ["ada"]]
    # Each is read all the same: it may have changed.
    assert len(table.readings) == 7


def test_of_many_rows_those_alone_are_written_that_are_not_known():
    table = Table()
    shared = SharedReads(table.shown)
    assert texts(shared, table, "ada") == [b'{"user":"ada","n":3}']
    table.go.clear()
    table.reading.clear()
    leader = Asking(shared, table, "first", as_json=True)
    assert table.reading.wait(LONG)
    asking = [asked(shared, table, user, as_json=True) for user in ("bob", "ada", "nobody", "eve", "bob")]
    table.go.set()
    assert [one.rows() for one in asking] == [[]] * 5
    assert [one.found.text and one.found.text[9:12] for one in asking] == [b"bob", b"ada", None, b"eve", b"bob"]
    assert leader.found.text == b'{"user":"first","n":5}'
    assert table.shows == [["ada"], ["first"], ["bob", "eve", "bob"]]


def test_a_damaged_value_is_never_known():
    table = Table()
    shared = SharedReads(table.shown)
    table.numbers["ada"] = -1
    for _ in range(2):
        with pytest.raises(StoreCorruptedException):
            texts(shared, table, "ada")
    table.numbers["ada"] = 3
    assert texts(shared, table, "ada") == [b'{"user":"ada","n":3}']


def test_only_so_many_texts_are_known(monkeypatch):
    monkeypatch.setattr(shared_reads, "_MOST_KNOWN", 2)
    table = Table()
    shared = SharedReads(table.shown)
    assert len(texts(shared, table, "a", "b", "c", "c", "b", "a")) == 6
    assert table.shows == [["a"], ["b"], ["c"], ["a"]]
    monkeypatch.setattr(shared_reads, "_LARGEST_KNOWN", 3)
    texts(shared, table, "long", "long", "d", "d")
    assert table.shows[4:] == [["long"], ["long"], ["d"]]


def test_batches_are_read_apart():
    asking, store = ask_together("a", "b", "c", batches=[1, 2, 1])
    assert [one.rows()[0]["user"] for one in asking] == ["a", "b", "c"]
    assert store.readings == [["first"], ["a", "c"], ["b"]]


def test_a_damaged_value_is_an_error_of_its_own_key_alone():
    asking, _ = ask_together("ada", "damaged", "bob")
    assert [one.rows()[0]["user"] for one in (asking[0], asking[2])] == ["ada", "bob"]
    with pytest.raises(StoreCorruptedException):
        asking[1].rows()


@pytest.mark.parametrize(("user", "error"), [("broken", StateStoreException), ("odd", ZeroDivisionError)])
def test_a_store_that_cannot_be_read_is_an_error_of_all(user, error):
    asking, store = ask_together("ada", user)
    for one in asking:
        with pytest.raises(error):
            one.rows()
    assert len(store.readings) == 2


class Interrupted(deque):
    """What waits, of whose last one the taker is interrupted once, as by a signal behind the call."""

    interrupted = False

    def popleft(self):
        one = super().popleft()
        if not self and not self.interrupted:
            self.interrupted = True
            raise KeyboardInterrupt
        return one


def test_an_interrupt_while_questions_are_taken_loses_none():
    shared, store = SharedReads(), Store()
    shared._waiting = Interrupted()
    with shared._turn:
        asking = [Asking(shared, store, user) for user in ("ada", "bob")]
        while len(shared._waiting) < len(asking):
            pass
    for one in asking:
        one.join(LONG)
        assert not one.is_alive()
    assert sorted(type(one.error) is KeyboardInterrupt for one in asking) == [False, True]
    assert not shared._waiting


def test_an_interrupt_of_who_reads_leaves_nobody_waiting():
    asking, store = ask_together("interrupted", "ada")
    for one in asking:
        one.join(LONG)
        assert not one.is_alive()
    # Whose turn it was is interrupted; the others are read again, until only that question is left.
    assert any(isinstance(one.error, KeyboardInterrupt) for one in asking)
    assert len(store.readings) >= 2
