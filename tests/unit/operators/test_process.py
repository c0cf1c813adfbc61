"""A processor's variables and timers in a real store, beside plain Python that does the same; tries that are undone."""

import datetime as dt
import random
import sys
from decimal import Decimal

import numpy as np
import pytest
from pyspark.sql import Row
from pyspark.sql.types import (
    ArrayType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from sparkrelay.operators.process import variables as variables_module
from sparkrelay.operators.process.handle import Handle
from sparkrelay.operators.process.rows import RowCodec, Verifier
from sparkrelay.operators.process.run import changes_of
from sparkrelay.operators.process.variables import Group, VariableSpec, Work, remove_expired
from sparkrelay.state import BatchStamp, TaskStore, Watermark
from sparkrelay.types import TopicPartition

INPUT = TopicPartition("input", 0)
N = StructType([StructField("n", LongType())])
TEXT = StructType([StructField("text", StringType())])


def variables(ttl_ms):
    return (
        VariableSpec(name="v", kind="value", key=None, value=N, ttl_ms=ttl_ms),
        VariableSpec(name="l", kind="list", key=None, value=TEXT, ttl_ms=ttl_ms),
        VariableSpec(name="m", kind="map", key=TEXT, value=N, ttl_ms=ttl_ms),
    )


class Reads:
    """What a micro-batch sees of its store; counts the entries that are read of it."""

    def __init__(self, view):
        self._view, self.count = view, 0

    def __getattr__(self, name):
        return getattr(self._view, name)

    def get(self, keys):
        self.count += len(keys)
        return self._view.get(keys)

    def between(self, *span):
        found = self._view.between(*span)
        self.count += found.num_rows
        return found

    def ranges(self, *spans):
        found = self._view.ranges(*spans)
        self.count += len(found[1])
        return found


class Batches:
    """Micro-batches of one store.

    Attributes:
        reads: what has been read of the store by the one under way.
        read: how many entries each one has read, but for those that it changes.
    """

    def __init__(self, path, ttl_ms=None):
        self.store, self.specs, self.committed = TaskStore.open(path), variables(ttl_ms), 0
        self.reads, self.read = None, []
        self.store.take_over(1)

    def run(self, now_ms, work, *, tries=1, commit=True):
        """Have `work(handle, turn)` work on the store; `turn(key)` gives a group its turn."""

        def operate(view):
            self.reads = Reads(view)
            at = Work(self.reads, now_ms)
            handle = Handle(at, self.specs, "processingtime")
            made = handle.getValueState("v", N), handle.getListState("l", TEXT), handle.getMapState("m", TEXT, N)

            def turn(key):
                at.group = Group.of(key)
                return made

            work(handle, turn)
            remove_expired(at)
            handle.write()
            self.read.append(self.reads.count)
            return changes_of(at, Watermark(now_ms))

        number = self.committed + 1
        stamp = BatchStamp(
            task_epoch=1,
            number=number,
            committed=self.committed,
            ranges={INPUT: (number, number + 1)},
            positions_before={INPUT: number},
            tries=tries,
        )
        applied = self.store.change_batch("leg", "s", batch=stamp, operate=operate)
        self.committed += commit
        return applied


class Model:
    """The same in Python alone; each thing with when it expires."""

    def __init__(self, ttl_ms):
        self.ttl_ms, self.value, self.items, self.map, self.timers = ttl_ms, None, [], {}, set()

    def lasting(self, what, now):
        return (what, None if self.ttl_ms is None else now + self.ttl_ms)

    def seen(self, now):
        def there(pair):
            return pair is not None and (pair[1] is None or pair[1] > now)

        return (
            self.value[0] if there(self.value) else None,
            [pair[0] for pair in self.items if there(pair)],
            {key: pair[0] for key, pair in self.map.items() if there(pair)},
            sorted(self.timers),
        )


def seen(handle, made):
    value, items, entries = made
    found = dict(entries.iterator())
    assert (value.exists(), items.exists(), entries.exists()) == (
        value.get() is not None,
        bool(list(items.get())),
        bool(found),
    )
    assert sorted(found) == sorted(entries.keys())
    assert sorted(found.values()) == sorted(entries.values())
    assert all(entries.getValue(key) == one and entries.containsKey(key) for key, one in found.items())
    return value.get(), list(items.get()), found, list(handle.listTimers())


def change(rng, made, handle, model, now):
    value, items, entries = made
    n = rng.randint(0, 99)
    key = (rng.choice(["", "k", "kk", "\0", "long " * 50, "Ünï"]),)
    match rng.randint(0, 10):
        case 0 | 1:
            value.update((n,))
            model.value = model.lasting((n,), now)
        case 2:
            value.clear()
            model.value = None
        case 3 | 4:
            items.appendValue((str(n),))
            model.items.append(model.lasting((str(n),), now))
        case 5:
            new = [(str(i),) for i in range(n % 4)]
            (items.put if n % 3 else items.appendList)(new)
            model.items = (model.items if not n % 3 else []) + [model.lasting(one, now) for one in new]
        case 6:
            if n % 2:
                items.clear()
                model.items = []
            else:
                entries.clear()
                model.map = {}
        case 7 | 8:
            entries.updateValue(key, (n,))
            model.map[key] = model.lasting((n,), now)
        case 9:
            entries.removeKey(key)
            model.map.pop(key, None)
        case 10:
            if n % 2:
                handle.registerTimer(1 << 40 | n)
                model.timers.add(1 << 40 | n)
            else:
                handle.deleteTimer(1 << 40 | n + 1)
                model.timers.discard(1 << 40 | n + 1)


@pytest.mark.parametrize("ttl_ms", [None, 1700])
@pytest.mark.parametrize("seed", range(6))
def test_it_keeps_what_python_keeps(tmp_path, seed, ttl_ms):
    rng = random.Random(seed)
    batches, now = Batches(tmp_path / "task", ttl_ms), 1_000_000
    keys = [b"", b"a", b"ab", b"x" * 300, b"x" * 299 + b"y"]
    models = {key: Model(ttl_ms) for key in keys}
    for _ in range(25):
        now += rng.choice([0, 1, 300, 700, 2500])
        tries = 1
        if rng.random() < 0.3:
            # A try that comes to nothing.
            def in_vain(handle, turn, now=now):
                for key in keys:
                    change(rng, turn(key), handle, Model(ttl_ms), now)

            batches.run(now, in_vain, commit=False)
            tries = 2

        def work(handle, turn, now=now):
            chosen = [key for key in keys if rng.random() < 0.6]
            handle.load(map(Group.of, chosen[:2]))
            for key in chosen:
                made = turn(key)
                for _ in range(rng.randint(0, 5)):
                    assert seen(handle, made) == models[key].seen(now)
                    change(rng, made, handle, models[key], now)
                assert seen(handle, made) == models[key].seen(now)

        batches.run(now, work, tries=tries)
    if ttl_ms is not None:

        def deleted(handle, turn):
            for key in keys:
                turn(key)
                for timer in list(handle.listTimers()):
                    handle.deleteTimer(timer)

        batches.run(now + 3000, deleted)
        assert batches.store.rows("s") == 0


def test_timers_are_due_in_their_order_and_none_twice(tmp_path):
    batches = Batches(tmp_path / "task")

    def register(handle, turn):
        for key, times in ((b"b", (30, 10)), (b"a", (10, 40)), (b"c", (20,))):
            turn(key)
            for time in times:
                handle.registerTimer(time)
                handle.registerTimer(time)

    batches.run(0, register)

    def fire(handle, turn):
        turn(b"c")
        handle.deleteTimer(20)
        turn(b"d")
        handle.registerTimer(5)
        found = [(ms, group.key) for ms, group in handle.timers.due(30)]
        assert found == [(5, b"d"), (10, b"a"), (10, b"b"), (30, b"b")]
        for ms, key in found:
            turn(key)
            handle.deleteTimer(ms)

    batches.run(30, fire)
    assert batches.store.rows("s") == 2


def test_a_timer_more_is_written_alone_however_many_there_are(tmp_path):
    batches = Batches(tmp_path / "task")

    def register(*times):
        def work(handle, turn):
            turn(b"a")
            for time in times:
                handle.registerTimer(time)

        return work

    batches.run(0, register(*range(1000, 0, -1)))
    found = batches.run(0, register(7, 5000))
    assert len(found.keys) == 2
    assert max(len(value.as_py()) for value in found.values) < 100

    def delete(handle, turn):
        turn(b"a")
        handle.deleteTimer(3)
        assert list(handle.listTimers()) == [1, 2, *range(4, 1001), 5000]

    assert len(batches.run(0, delete).keys) == 2
    batches.run(0, lambda handle, turn: (turn(b"ab"), handle.registerTimer(3)))

    def look(handle, turn):
        turn(b"ab")
        assert list(handle.listTimers()) == [3]
        assert [(ms, group.key) for ms, group in handle.timers.due(4)] == [(1, b"a"), (2, b"a"), (3, b"ab"), (4, b"a")]

    batches.run(0, look)


def test_whether_a_map_has_entries_is_known_without_reading_them_all(tmp_path):
    batches = Batches(tmp_path / "task", ttl_ms=1_000)

    def fill(handle, turn):
        _, _, entries = turn(b"a")
        for number in range(1_000):
            entries.updateValue((str(number),), (number,))

    batches.run(0, fill)

    def ask(handle, turn):
        _, _, entries = turn(b"a")
        assert entries.exists()
        assert entries.exists()
        assert batches.reads.count < 50
        for key in list(entries.keys()):
            entries.removeKey(key)
        assert not entries.exists()
        entries.updateValue(("new",), (1,))
        assert entries.exists()
        assert batches.reads.count < 1_100

    batches.run(10, ask)
    batches.run(1_020, lambda handle, turn: turn(b"a")[2].exists() and pytest.fail("it has expired"))


def test_what_is_written_is_read_as_it_was():
    nested = StructType(
        [
            StructField("tags", ArrayType(StringType())),
            StructField("counts", MapType(StringType(), IntegerType())),
            StructField("at", TimestampType()),
            StructField("inner", N),
            StructField("x", DoubleType()),
        ]
    )
    rows = [
        (["a", None], {"k": 1}, dt.datetime.fromisoformat("2026-03-28T01:02:03.000004"), Row(n=5), -0.0),
        (None, None, None, None, None),
        ([], {}, dt.datetime.fromisoformat("1970-01-02T00:00:00"), Row(n=None), float("inf")),
    ]
    codec = RowCodec(nested, TEXT)
    found, expires = codec.read(codec.write([(*row, "t") for row in rows], [1, 2, 3]))
    assert found == [(*row, "t") for row in rows]
    assert expires == [1, 2, 3]


def test_nobody_changes_what_is_kept_by_changing_what_was_read(tmp_path):
    lists = StructType([StructField("of", ArrayType(LongType()))])
    batches = Batches(tmp_path / "task")
    batches.specs = (VariableSpec(name="v", kind="value", key=None, value=lists, ttl_ms=None), *batches.specs[1:])

    def work(handle, turn):
        value, *_ = turn(b"a")
        given = [1]
        value.update((given,))
        given.append(2)
        value.get()[0].append(3)
        assert value.get() == ([1],)

    batches.run(0, work)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (("a",), "value state 'v' takes n, got .'a',."),
        ((1, 2), "value state 'v' takes n, got .1, 2."),
        (7, "value state 'v' takes a tuple of n, got int 7"),
        (Row(m=1), "value state 'v' takes n, got a Row of m"),
        ((1 << 63,), "value state 'v' takes n"),
    ],
)
def test_what_does_not_fit_is_refused_where_it_is_put(value, message):
    with pytest.raises(TypeError, match=message):
        Verifier(N, "value state 'v'")(value)


def test_numpy_s_numbers_and_rows_in_another_order_fit():
    assert Verifier(N, "v")((np.int32(3),)) == (3,)
    prices = Verifier(StructType([StructField("price", DecimalType(5, 2))]), "value state 'price'")
    assert prices((Decimal("1.5"),)) == (Decimal("1.5"),)
    with pytest.raises(TypeError, match=r"value state 'price' takes price, got .*12345"):
        prices((Decimal(12345),))
    both = StructType([StructField("a", LongType()), StructField("b", StringType())])
    assert Verifier(both, "v")(Row(b="x", a=1)) == (1, "x")


def test_timers_and_variables_are_refused_where_they_cannot_be(tmp_path):
    batches = Batches(tmp_path / "task")

    def work(handle, turn):
        with pytest.raises(RuntimeError, match="init.. and close.. have none"):
            handle.registerTimer(5)
        for wrong in (-1, 1.5, True, 1 << 62):
            with pytest.raises(TypeError, match="registerTimer.. takes milliseconds since 1970, not"):
                handle.registerTimer(wrong)
        with pytest.raises(RuntimeError, match="asks for value state 'other', but did not when the pipeline was built"):
            handle.getValueState("other", N)
        with pytest.raises(RuntimeError, match="asks for list state 'v'"):
            handle.getListState("v", N)
        turn(b"a")
        handle.passed_ms = 10
        with pytest.raises(ValueError, match=r"registerTimer\(10\): the watermark is at 10 ms"):
            handle.registerTimer(10)
        untimed = Handle(Work(None, 0), (), "none")
        with pytest.raises(RuntimeError, match=r"listTimers\(\) needs a time"):
            untimed.listTimers()

    batches.run(0, work)


def test_what_was_never_there_is_not_deleted(tmp_path):
    batches = Batches(tmp_path / "task", 1000)

    def work(handle, turn):
        value, items, entries = turn(b"a")
        for one in (value, items, entries):
            one.clear()
        items.appendValue(("x",))
        items.clear()
        entries.removeKey(("k",))
        handle.registerTimer(5)
        handle.deleteTimer(5)

    assert len(batches.run(0, work).keys) == 0


@pytest.mark.parametrize("then", ["get", "exists", "clear"])
def test_a_list_whose_elements_expire_looks_up_those_that_are_left(tmp_path, then):
    """However many have expired: it is a window of what came last, say, that goes on for years."""
    batches = Batches(tmp_path, ttl_ms=2_500)
    for number in range(1, 60):

        def work(handle, turn, number=number):
            _, items, _ = turn(b"k")
            items.appendList([(str(number),)] * 2)
            left = [(str(n),) for n in range(max(1, number - 2), number + 1) for _ in range(2)]
            assert list(items.get()) == left
            if then == "exists":
                assert items.exists()
            if then == "clear" and number == 59:
                items.clear()
                assert list(items.get()) == []

        batches.run(number * 1_000, work)
    assert max(batches.read[-10:]) <= max(batches.read[5:15]), "as many as at the beginning"


def test_a_map_s_key_is_encoded_once_and_equal_ones_of_other_types_stay_apart(tmp_path, monkeypatch):
    encoded = []
    write = RowCodec.write

    def noted(codec, rows, expires):
        if expires == [0]:
            encoded.extend(rows)
        return write(codec, rows, expires)

    monkeypatch.setattr(RowCodec, "write", noted)
    keys, texts = ["1", 1.0, True, 0.0, -0.0], ["1", "1.0", "true", "0.0", "-0.0"]

    def work(_, turn):
        for group in (b"a", b"b"):
            _, _, entries = turn(group)
            for _ in range(3):
                for number, key in enumerate(keys, 1):
                    entries.updateValue((key,), (number,))

    def look(_, turn):
        found = {text: turn(b"b")[2].getValue((text,)) for text in texts}
        assert found == {text: (number,) for number, text in enumerate(texts, 1)}

    batches = Batches(tmp_path)
    batches.run(1, work)
    assert encoded.count(("1",)) == 1
    batches.run(2, look)


def test_a_map_that_has_its_turn_looks_at_its_own_groups_entries(tmp_path):
    """The work of a turn, in steps of Python's, is the same however many groups had theirs in the micro-batch."""
    steps = []

    def count(frame, event, _):
        if frame.f_code.co_filename != variables_module.__file__:
            return None
        frame.f_trace_opcodes = True
        steps[-1] += event == "opcode"
        return count

    def work(handle, turn):
        for number in range(300):
            _, _, entries = turn(b"%d" % number)
            for key in ("a", "b"):
                entries.updateValue((key,), (number,))
            steps.append(0)
            before = sys.gettrace()
            sys.settrace(count)
            try:
                assert sorted(entries.keys()) == [("a",), ("b",)]
                entries.removeKey(("a",))
                assert list(entries.keys()) == [("b",)]
            finally:
                sys.settrace(before)
        for number in range(300):
            assert list(turn(b"%d" % number)[2].iterator()) == [(("b",), (number,))]

    Batches(tmp_path).run(1, work)
    assert steps[-1] < 1.5 * steps[5]
