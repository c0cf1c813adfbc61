"""Keys as somebody types them."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from tests.doubles.state_steps import state_spec

from sparkrelay.datasources.table_reader import _example, key_of
from sparkrelay.datasources.tables import Store, StoredTable
from sparkrelay.errors import ConfigException

TIME = pa.timestamp("us", "UTC")
WINDOW = pa.struct([("start", TIME), ("end", TIME)])


def table_of(*kinds):
    keys = [(f"k{index}", kind) for index, kind in enumerate(kinds)]
    return StoredTable(
        Store("counts", "app-counts-changelog", ()), state_spec(keys, [], [("n", pa.int64())], ()).layout
    )


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
