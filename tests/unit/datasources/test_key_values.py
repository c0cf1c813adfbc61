"""Which keys and partitions values of columns are of, and which keys options and typed values name."""

import datetime as dt
import json
from decimal import Decimal

import pyarrow as pa
import pytest
from tests.doubles.state_steps import state_spec

from sparkrelay.datasources.key_values import WantedKeys, _example, key_of, key_texts
from sparkrelay.datasources.options import Options
from sparkrelay.errors import ConfigException, SerializationException
from sparkrelay.records.keys import key_bytes
from sparkrelay.records.partition import murmur2_partitions

KEYS = [("shop", pa.string()), ("n", pa.int32())]


def spec_of(keys=KEYS, repartitioned_by=()):
    return state_spec(keys, [], [("sum", pa.int64())], (), by=repartitioned_by).layout


def texts(columns, **options):
    return key_texts(Options(options, "sparkrelay-state", ("key", "keys"), of_path="storeName"), columns)


def test_values_of_the_whole_key_make_a_message_key():
    found = WantedKeys.of_values(spec_of(), {"shop": "a", "n": 1}).message_keys
    assert found.equals(key_bytes([pa.array(["a"]), pa.array([1], pa.int32())]).cast(pa.binary()))
    assert WantedKeys.of_values(spec_of(), {"shop": "a"}).message_keys is None


def test_equal_values_make_one_message_key():
    zeros = [WantedKeys.of_values(spec_of([("x", pa.float64())]), {"x": x}).message_keys for x in (0.0, -0.0)]
    assert zeros[0].equals(zeros[1])


def test_rows_with_some_columns_of_the_key_are_left():
    rows = pa.record_batch([["a", "a", "b"], [1, 2, 2], [7, 8, 9]], ["shop", "n", "sum"])
    rows = rows.cast(pa.schema([*KEYS, ("sum", pa.int64())]))
    (found,) = WantedKeys.of_values(spec_of(), {"shop": "a"}).of(iter([rows]))
    assert found.column("sum").to_pylist() == [7, 8]


def test_a_partition_is_known_after_a_repartition_topic_alone():
    def partitions(values, **spec):
        return WantedKeys.of_values(spec_of(**spec), values).partitions(7)

    assert partitions({"shop": "a", "n": 1}) is None
    assert partitions({"shop": "a"}, repartitioned_by=("shop",)) == {murmur2_partitions(pa.array([b"a"]), 7)[0]}
    assert partitions({"shop": "a"}, repartitioned_by=("user",)) is None


def test_keys_are_named_as_paths_of_stores_spell_them():
    assert texts(["user"]) is None
    assert texts(["user"], key="[1]") == ["[1]"]
    assert texts(["user"], keys='["ada", "1"]') == ["ada", "1"]
    assert texts(["n"], keys="[1, -2]") == ["1", "-2"]
    assert texts(["shop", "n"], keys='[["a", 1], {"n": 2, "shop": "b"}]') == ['["a", 1]', '{"n": 2, "shop": "b"}']


@pytest.mark.parametrize("keys", ["", "ada", "{}", "[]", "[" * 100_000, json.dumps([0] * 1001)])
def test_what_is_no_list_of_keys_is_refused(keys):
    with pytest.raises(ConfigException, match=r"must be a JSON array of 1 to 1,000 keys.*this key has shop, n"):
        texts(["shop", "n"], keys=keys)


def test_one_key_and_several_are_not_both_named():
    with pytest.raises(ConfigException, match="not both"):
        texts(["user"], key="a", keys='["b"]')


def test_other_rows_are_left_out():
    wanted = WantedKeys.of_texts(spec_of(), ['["a", 1]', '["b", 2]', '["a", 1]'])
    rows = pa.record_batch([["a", "a", "b", None], [1, 2, 2, 1], [7, 8, 9, 10]], ["shop", "n", "sum"])
    rows = rows.cast(pa.schema([*KEYS, ("sum", pa.int64())]))
    assert [batch.column("sum").to_pylist() for batch in wanted.of(iter([rows]))] == [[7, 9]]


def test_the_partitions_of_wanted_keys():
    some = ['["a", 1]', '["b", 2]', '["a", 3]']
    spec = spec_of(repartitioned_by=("shop",))
    assert WantedKeys.of_texts(spec, some).partitions(7) == set(murmur2_partitions(pa.array([b"a", b"b"]), 7).tolist())
    assert WantedKeys.of_texts(spec, ["[null, 1]"]).partitions(7) is None, "a null is in any"
    assert WantedKeys.of_texts(spec_of(), some).partitions(7) is None


def test_a_key_of_other_columns_is_refused():
    with pytest.raises(
        SerializationException, match=r"not a key of store 'counts', which has the columns shop \(string\)"
    ):
        WantedKeys.of_texts(spec_of(), ['["a"]'])


TIME = pa.timestamp("us", "UTC")
WINDOW = pa.struct([("start", TIME), ("end", TIME)])


def table_of(*kinds):
    keys = [(f"k{index}", kind) for index, kind in enumerate(kinds)]
    return state_spec(keys, [], [("n", pa.int64())], ()).layout


def test_values_are_read_by_the_types_of_the_columns():
    found = table_of(pa.string(), pa.int32(), pa.bool_(), pa.date32(), pa.decimal128(5, 2), pa.binary(), WINDOW)
    window = '{"start": "2024-05-01 12:00:00Z", "end": "2024-05-01T12:01:00Z"}'
    assert key_of(found, ["ada", "-3", "TRUE", "2024-05-01", "1.50", "00ff", window]) == {
        "k0": "ada",
        "k1": -3,
        "k2": True,
        "k3": dt.date(2024, 5, 1),
        "k4": Decimal("1.50"),
        "k5": b"\x00\xff",
        "k6": {
            "start": dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC),
            "end": dt.datetime(2024, 5, 1, 12, 1, tzinfo=dt.UTC),
        },
    }
    assert key_of(found, ["ada"]) == {"k0": "ada"}


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.int32(), "x"),
        (pa.int32(), "3000000000"),
        (pa.bool_(), "yes"),
        (pa.binary(), "xyz"),
        (WINDOW, "today"),
        (WINDOW, '{"start": "2024-05-01"}'),
        (pa.date32(), "soon"),
    ],
)
def test_what_is_no_value_is_refused(kind, text):
    with pytest.raises(ConfigException, match="not a value of the key's column 'k0', .*: write it like "):
        key_of(table_of(kind), [text])


@pytest.mark.parametrize("kind", [pa.string(), pa.int32(), pa.bool_(), pa.date32(), pa.float64(), WINDOW, TIME])
def test_what_an_error_says_to_write_is_read(kind):
    assert key_of(table_of(kind), [_example(kind).strip("'")])["k0"] is not None


def test_an_error_shows_the_json_of_a_window():
    with pytest.raises(ConfigException) as refused:
        key_of(table_of(pa.string(), WINDOW), ["NL", "today"])
    assert str(refused.value).endswith(
        """: write it like '{"start": "2024-05-01T12:00:00Z", "end": "2024-05-01T12:10:00Z"}'"""
    )


def test_more_values_than_columns_are_refused():
    with pytest.raises(
        ConfigException, match="2 values for the key of store 'counts', which has the columns k0: write 1 to 1"
    ):
        key_of(table_of(pa.string()), ["a", "b"])
    with pytest.raises(ConfigException, match="0 values"):
        key_of(table_of(pa.string()), [])
