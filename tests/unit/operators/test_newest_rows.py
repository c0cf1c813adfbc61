import pyarrow as pa

from sparkrelay import hidden_columns as hidden
from sparkrelay.operators.table.newest_rows import NewestRows

ROWS = NewestRows(pa.schema([("name", pa.string()), ("n", pa.int32())]))


def table(*rows):
    """Rows of key, name, n and timestamp; without a name and n they delete."""
    keys, names, numbers, times = zip(*rows, strict=True)
    return pa.table(
        {
            "key": pa.array(keys),
            "name": pa.array(names, pa.string()),
            "n": pa.array(numbers, pa.int64()),
            hidden.TIMESTAMP: pa.array(times, pa.int64()),
            hidden.TOMBSTONE: pa.array([name is None for name in names]),
        }
    )


def test_the_last_row_of_each_key_counts():
    rows = table(("a", "x", 1, 5), ("b", "y", 2, 6), ("a", "z", 3, 4), ("b", None, None, 9))
    newest = ROWS.partial(pa.concat_tables([rows.slice(0, 1), rows.slice(1)]), ["key"])
    assert sorted(zip(newest["key"].to_pylist(), newest["name"].to_pylist(), strict=True)) == [("a", "z"), ("b", None)]
    assert ROWS.partial(rows.slice(0, 0), ["key"]).num_rows == 0


def test_rows_come_back_as_they_were():
    rows = table(("a", "x", 1, 5), ("b", None, None, 6), ("c", "", None, 7))
    values = ROWS.values(rows)
    assert [value.is_valid for value in values] == [True, False, True]
    names, numbers, times = ROWS.results(values)
    assert (names.to_pylist(), numbers.to_pylist()) == (["x", None, ""], [1, None, None])
    assert numbers.type == pa.int32()
    assert times.to_pylist() == [5, None, 7]


def test_what_changes_nothing_goes_no_further():
    old = ROWS.values(table(("a", "x", 1, 5), ("b", "y", 2, 5), ("c", "z", 3, 5)))
    old = pa.concat_arrays([old, pa.nulls(2, old.type)])
    rows = table(("a", "x", 1, 9), ("b", "yy", 2, 9), ("c", None, None, 9), ("d", None, None, 9), ("e", "v", 4, 9))
    new, (names, numbers, times, deletes, changed) = ROWS.merge(rows, old)
    assert changed.to_pylist() == [False, True, True, False, True]
    assert deletes.to_pylist() == [False, False, True, True, False]
    assert names.to_pylist() == ["x", "yy", "z", None, "v"], "what is deleted goes on as it was"
    assert numbers.to_pylist() == [1, 2, 3, None, 4]
    assert times.to_pylist() == [9] * 5
    assert new[0] == old[0], "an equal row keeps the time that it had"
    assert [value.is_valid for value in new] == [True, True, False, False, True]


def test_what_a_tombstone_says_besides_is_not_looked_at():
    """Behind a repartition topic its columns have travelled too."""
    old = ROWS.values(table(("a", "x", 1, 5)))
    rows = table(("a", "y", 2, 6)).set_column(4, hidden.TOMBSTONE, pa.array([True]))
    new, (names, *_, changed) = ROWS.merge(rows, old)
    assert (new.null_count, names.to_pylist(), changed.to_pylist()) == (1, ["x"], [True])


def test_an_equal_row_that_is_older_is_a_change():
    """KTableSourceTest.testKTableSourceEmitOnChange"""
    old = ROWS.values(table(("a", "x", 1, 5), ("b", "x", 1, 5), ("c", "x", 1, -5)))
    new, (*_, changed) = ROWS.merge(table(("a", "x", 1, 4), ("b", "x", 1, 5), ("c", "x", 1, 0)), old)
    assert changed.to_pylist() == [True, False, False]
    assert ROWS.results(new)[-1].to_pylist() == [4, 5, -5]


NESTED = pa.schema(
    [
        ("tags", pa.list_(pa.string())),
        ("attributes", pa.map_(pa.string(), pa.struct([("a", pa.int64()), ("b", pa.list_(pa.float64()))]))),
    ]
)


def nested(*rows):
    """Rows of tags and attributes; None deletes."""
    tags, attributes = zip(*(row or (None, None) for row in rows), strict=True)
    return pa.table(
        {
            "key": pa.array([str(number) for number in range(len(rows))]),
            "tags": pa.array(tags, NESTED.field(0).type),
            "attributes": pa.array(attributes, NESTED.field(1).type),
            hidden.TIMESTAMP: pa.array([5] * len(rows), pa.int64()),
            hidden.TOMBSTONE: pa.array([row is None for row in rows]),
        }
    )


def test_rows_with_lists_and_maps_are_compared_deeply():
    codec = NewestRows(NESTED)
    one, other = ("k", {"a": 1, "b": [1.0, None]}), ("l", None)
    first = (["x", None], [one, other])
    old = codec.values(nested(*[first] * 6, (None, None), ([], [])))
    new_rows = nested(
        first,
        (["x"], [one, other]),
        (["x", None], [("k", {"a": 1, "b": [1.5, None]}), other]),
        (["x", None], [other, one]),  # maps are written, and compared, in the order of their entries
        None,
        (["x", None], None),
        ([], None),
        ([], []),
    )
    new, (tags, attributes, _, deletes, changed) = codec.merge(new_rows, old)
    assert changed.to_pylist() == [False, True, True, True, True, True, True, False]
    assert deletes.to_pylist() == [False] * 4 + [True] + [False] * 3
    assert (tags[4].as_py(), attributes[4].as_py()) == first, "what is deleted goes on as it was"
    assert codec.results(new)[0].to_pylist() == [
        ["x", None],
        ["x"],
        ["x", None],
        ["x", None],
        None,
        ["x", None],
        [],
        [],
    ]
    assert codec.results(new)[1].to_pylist()[3] == [other, one]
