import lmdb
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from sparkrelay.errors import StateStoreException
from sparkrelay.state.lmdb import rows
from sparkrelay.state.lmdb.ranges import TableView
from sparkrelay.state.lmdb.table import Table

#: Few and short, so that they repeat, and with the bytes that a comparison of text would get wrong.
keys = st.lists(st.sampled_from(b"\x00\x7f\x80\xffa"), max_size=2).map(bytes)


def latest(*columns):
    return tuple(column.to_pylist() for column in rows.latest(*columns))


@given(records=st.lists(st.tuples(keys, st.none() | st.binary(max_size=3))), skipped=st.integers(0, 3))
def test_the_latest_of_each_key_counts_in_the_order_of_bytes(records, skipped):
    columns = [pa.array(column, pa.binary()) for column in (zip(*records, strict=True) if records else ([], []))]
    wanted = dict(records[skipped:])
    # A slice, as a batch is that was cut from a longer one.
    assert latest(*(column.slice(skipped) for column in columns)) == (
        sorted(wanted),
        [wanted[key] for key in sorted(wanted)],
    )


def test_the_latest_of_many_equal_keys_is_the_last():
    keys = pa.array([b"%d" % (number % 7) for number in range(10_000)])
    values = pa.array([b"%d" % number for number in range(10_000)])
    assert latest(keys, values) == (
        [b"%d" % key for key in range(7)],
        [b"%d" % max(number for number in range(9_990, 10_000) if number % 7 == key) for key in range(7)],
    )


@given(given=st.sets(st.binary(max_size=3)).map(list), at=st.permutations(range(3)))
def test_keys_are_sorted_and_what_belongs_to_them_goes_there_and_back(given, at):
    given = given[at[0] :]
    keys = pa.array(given, pa.binary())
    ordered = rows.SortedKeys.of(keys)
    assert ordered.keys.to_pylist() == sorted(given)
    assert ordered.as_stored(keys).to_pylist() == sorted(given)
    assert ordered.as_given(ordered.keys).to_pylist() == given


def test_keys_in_order_are_left_as_they_are():
    keys = pa.array([b"", b"a", b"a\x00", b"b", b"\xff"])
    assert rows.SortedKeys.of(keys).order is None
    assert rows.latest(keys, keys) == (keys, keys)


@pytest.mark.parametrize("keys", [[b"a", b"a"], [b"b", b"a", b"b"], [b"a", None], [None]])
def test_keys_that_are_null_or_come_twice_are_refused(keys):
    with pytest.raises(StateStoreException):
        rows.SortedKeys.of(pa.array(keys, pa.binary()))


def test_ranges_that_overlap_each_have_their_keys(tmp_path):
    keys = [bytes([number]) for number in range(1, 40)]
    cuts = [(3, 9), (5, 12), (5, 12), (30, 35), (2, 4), (7, 7), (6, 8), (9, 3), (4, 20), (38, 60), (39, 40)]
    environment = lmdb.open(str(tmp_path), max_dbs=1)
    table = Table.of(environment.open_db(b"t"), "t", tmp_path)
    with environment.begin(write=True) as transaction:
        rows.put(transaction, table, pa.array(keys, pa.binary()), pa.array(keys, pa.binary()))
        for order in (cuts, sorted(cuts), cuts[::-1]):
            bounds = [bytes([start]) for start, _ in order], [bytes([stop]) for _, stop in order]
            numbers, found, _ = TableView(transaction, table).ranges(*bounds)
            expected = [(at, key) for at, (start, stop) in enumerate(order) for key in keys if start <= key[0] < stop]
            assert list(zip(numbers.tolist(), found.to_pylist(), strict=True)) == expected
            there = TableView(transaction, table).any_in(*bounds)
            assert there.tolist() == [at in {at for at, _ in expected} for at in range(len(order))]
    environment.close()


@given(
    held=st.dictionaries(st.integers(0, 30), st.integers(0, 9)),
    asked=st.lists(st.integers(0, 30), max_size=20),
    most=st.integers(0, 30),
)
def test_values_are_read_until_they_come_to_some_bytes(tmp_path_factory, held, asked, most):
    path = tmp_path_factory.mktemp("rows")
    environment = lmdb.open(str(path), max_dbs=1, sync=False)
    table = Table.of(environment.open_db(b"t"), "t", path)
    keys = pa.array([b"k%02d" % key for key in held], pa.binary())
    wanted = pa.array([b"k%02d" % key for key in asked], pa.binary())
    with environment.begin(write=True) as transaction, pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "_FEW", 1)
        rows.put(transaction, table, keys, pa.array([b"v" * size for size in held.values()], pa.binary()))
        values = [b"v" * held[key] if key in held else None for key in asked]
        assert rows.has(transaction, table, wanted).to_pylist() == [value is not None for value in values]
        some = rows.get_some(transaction, table, wanted, most)
        assert some.to_pylist() == values[: len(some)]
        assert len(some) or not (asked and most)
        everything = rows.get_some(transaction, table, wanted, 1 << 20)
        assert everything.to_pylist() == values
        starts = sorted(asked)
        bounds = [b"k%02d" % key for key in starts], [b"k%02d" % (key + 1) for key in starts]
        *_, lengths, kept = TableView(transaction, table).found_in(*bounds, most)
        assert kept is None if lengths.sum() > most else kept.to_pylist() == [b"v" * size for size in lengths]
    environment.close()
