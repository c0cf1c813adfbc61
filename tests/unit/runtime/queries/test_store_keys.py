"""What users call a key, as Python values and as text, and where keys lie in a store."""

import datetime as dt
import json
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st
from tests.doubles.state_steps import state_spec

from sparkrelay.errors import SerializationException
from sparkrelay.operators.table.search import key_spans
from sparkrelay.operators.watermarks import WindowWatermark
from sparkrelay.records.keys import key_bytes
from sparkrelay.runtime.queries.store_keys import StoreKeys, as_milliseconds, key_example

TIME = pa.timestamp("us", "UTC")
WINDOW = pa.struct([("start", TIME), ("end", TIME)])
NEW_YEAR = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def keys_of(*columns, **more):
    return StoreKeys(state_spec(columns, [], [("count", pa.int64())], (), **more).layout)


USER = keys_of(("user", pa.string()))
NUMBER = keys_of(("n", pa.int64()))
SHOP = keys_of(("user", pa.string()), ("shop", pa.int32()), partitioned_by=("user",))
WATERMARK = WindowWatermark(delay_ms=0, window="window", final=False, ahead_ms=0)
WINDOWED = keys_of(("window", WINDOW), ("user", pa.string()), watermark=WATERMARK)
WINDOWS = keys_of(("window", WINDOW), watermark=WATERMARK)
PRICE = keys_of(("price", pa.decimal128(22, 2)))
PRICES = keys_of(("shop", pa.float64()), ("price", pa.decimal128(22, 2)))


def rows(batch):
    return batch.to_pylist()


@pytest.mark.parametrize(
    ("kind", "key"),
    [(pa.date32(), NEW_YEAR), (pa.date32(), 1.5), (pa.int64(), 1.5), (pa.int8(), Decimal("1.5")),
     (pa.int64(), float("nan")), (TIME, 0.5), (pa.list_(pa.int32()), ([1, 1.5],)),
     (pa.struct([("day", pa.date32())]), {"day": NEW_YEAR})],
)  # fmt: skip
def test_nothing_of_a_key_is_cut_off(kind, key):
    with pytest.raises(
        SerializationException, match=r"is not a key of store .*(not a whole number|integer|time of day)"
    ):
        keys_of(("k", kind)).columns(key)


KINDS = [
    *(pa.string(), pa.int64(), pa.int8(), pa.bool_(), pa.float64(), pa.decimal128(22, 2), pa.date32(), TIME),
    *(WINDOW, pa.binary(), pa.list_(pa.int32()), pa.struct([("shop", pa.string()), ("n", pa.int32())])),
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_key_that_an_error_shows_is_a_key(kind):
    alone, beside = keys_of(("k", kind)), keys_of(("k", kind), ("user", pa.string()))
    with pytest.raises(
        SerializationException, match=r"is not a key of store .*A key in text is written as \["
    ) as refused:
        beside.from_text("NL")
    assert beside.from_text(str(refused.value).rpartition("is written as ")[2]).num_rows == 1
    assert alone.from_text(key_example(alone.schema)).num_rows == 1


def test_a_key_of_a_path_that_is_not_json_shows_the_json_that_is_wanted():
    with pytest.raises(SerializationException) as refused:
        SHOP.from_text("NL")
    assert str(refused.value).endswith(': it is not JSON. A key in text is written as ["NL", 7]')


@pytest.mark.parametrize(("kind", "key"), [(pa.int64(), 2.0), (pa.date32(), NEW_YEAR.date()), (pa.int8(), Decimal(7))])
def test_equal_values_of_another_type_are_a_key(kind, key):
    assert rows(keys_of(("k", kind)).columns(key)) == [{"k": key}]


@pytest.mark.parametrize(
    ("keys", "key", "row"),
    [
        (USER, "ada", {"user": "ada"}),
        (USER, ("ada",), {"user": "ada"}),
        (USER, {"user": ""}, {"user": ""}),
        (NUMBER, -3, {"n": -3}),
        (SHOP, ("ada", 3), {"user": "ada", "shop": 3}),
        (SHOP, {"shop": 3, "user": None}, {"user": None, "shop": 3}),
        (
            WINDOWED,
            ({"start": NEW_YEAR, "end": NEW_YEAR}, "ada"),
            {"window": {"start": NEW_YEAR, "end": NEW_YEAR}, "user": "ada"},
        ),
        (WINDOWS, {"start": NEW_YEAR, "end": NEW_YEAR}, {"window": {"start": NEW_YEAR, "end": NEW_YEAR}}),
        (WINDOWS, {"window": {"start": NEW_YEAR, "end": NEW_YEAR}}, {"window": {"start": NEW_YEAR, "end": NEW_YEAR}}),
    ],
)
def test_a_key_is_its_columns(keys, key, row):
    assert rows(keys.columns(key)) == [row]


@pytest.mark.parametrize(
    ("keys", "key", "words"),
    [
        (USER, 3, r"has the columns user \(string\)"),
        (USER, None, "never null"),
        (USER, ("a", "b"), "it has 2 values"),
        (NUMBER, "3", "n: "),
        (NUMBER, 1 << 70, "n: "),
        (SHOP, "ada", "it has 1 values"),
        (SHOP, {"user": "ada"}, "it has the columns user"),
        (WINDOWED, ({"start": dt.datetime(2026, 1, 1), "end": NEW_YEAR}, "a"), "no time zone"),  # noqa: DTZ001
        (WINDOWED, ({"start": NEW_YEAR}, "a"), "window: its fields are start, end, not start"),
        (WINDOWED, ({"start": NEW_YEAR, "stop": NEW_YEAR}, "a"), "window: its fields are start, end, not"),
    ],
)
def test_what_is_no_key_is_refused_in_words(keys, key, words):
    with pytest.raises(SerializationException, match=words):
        keys.columns(key)


@pytest.mark.parametrize(
    ("keys", "text", "row"),
    [
        (USER, "ada", {"user": "ada"}),
        (USER, '"ada"', {"user": '"ada"'}),
        (NUMBER, "-3", {"n": -3}),
        (SHOP, '["ada", 3]', {"user": "ada", "shop": 3}),
        (SHOP, '{"user": "ada", "shop": 3}', {"user": "ada", "shop": 3}),
        (
            WINDOWED,
            '[{"start": "2026-01-01T00:00:00Z", "end": "2026-01-01T00:00:00Z"}, "ada"]',
            {"window": {"start": NEW_YEAR, "end": NEW_YEAR}, "user": "ada"},
        ),
        (keys_of(("at", TIME)), "2026-01-01T00:00:00Z", {"at": NEW_YEAR}),
        (
            WINDOWS,
            '{"start": "2026-01-01T00:00:00Z", "end": "2026-01-01T00:00:00Z"}',
            {"window": {"start": NEW_YEAR, "end": NEW_YEAR}},
        ),
        (PRICE, "12345678901234567890.12", {"price": Decimal("12345678901234567890.12")}),
        (PRICES, "[0.5, 12345678901234567890.12]", {"shop": 0.5, "price": Decimal("12345678901234567890.12")}),
        (PRICES, '{"price": 3, "shop": 1}', {"shop": 1.0, "price": Decimal("3.00")}),
        (keys_of(("at", pa.struct([("x", pa.int32()), ("y", pa.int32())]))), '{"y": 1}', {"at": {"x": None, "y": 1}}),
    ],
)
def test_a_key_may_come_as_text(keys, text, row):
    assert rows(keys.from_text(text)) == [row]


@pytest.mark.parametrize(
    ("keys", "text", "words"),
    [
        (NUMBER, "three", "n"),
        (NUMBER, "null", "never null"),
        (NUMBER, "[1, 2]", "n"),
        (SHOP, "ada", "not JSON"),
        (SHOP, "3", "it has 1 values"),
        (SHOP, '["ada", "three"]', "shop"),
        (SHOP, "[" * 10_000, "not JSON"),
        (WINDOWED, '[{"start": "2026-01-01T00:00:00Z"}, "a"]', "window: its fields are start, end, not start"),
        (WINDOWS, '{"begin": 1, "end": 2}', "window: its fields are start, end, not begin, end"),
    ],
)
def test_text_that_is_no_key_is_refused_in_words(keys, text, words):
    with pytest.raises(SerializationException, match=words):
        keys.from_text(text)


def test_windows_have_a_column_of_their_own():
    assert (WINDOWED.window, WINDOWED.plain.names) == ("window", ["user"])
    assert keys_of(("window", WINDOW), ("user", pa.string())).window == "window"
    assert (USER.window, USER.plain.names) == (None, ["user"])


def test_the_partition_is_that_of_the_columns_that_decide_it():
    """It is Kafka's: of the user alone, whatever the shop is."""
    found = {SHOP.partition(SHOP.columns((user, shop)), 64) for user in ("ada",) for shop in range(9)}
    assert len(found) == 1
    assert USER.partition(USER.columns("ada"), 64) is None, "nobody says what decides it"
    assert SHOP.partition(SHOP.columns((None, 3)), 64) is None, "a key that is null is anywhere"


def test_times_are_milliseconds():
    assert as_milliseconds(None, "to") is None
    assert as_milliseconds(5, "to") == 5
    assert as_milliseconds(dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC), "to") == 1000
    with pytest.raises(TypeError, match="to='now'"):
        as_milliseconds("now", "to")
    for time in (10**17, -(10**18)):
        with pytest.raises(ValueError, match=f"from={time} is too far from 1970"):
            as_milliseconds(time, "from")
    assert pa.scalar(as_milliseconds((2**63 - 1) // 1000, "to") * 1000, TIME) is not None


def within(spans, key):
    return [index for index, (start, stop) in enumerate(spans) if start <= key < stop]


@given(
    st.lists(st.integers(-(1 << 63), (1 << 63) - 1)), st.lists(st.integers(-9, 9) | st.none(), min_size=2, max_size=2)
)
def test_a_range_of_numbers_is_in_their_order(others, bounds):
    numbers = sorted({*others, *range(-9, 10)})
    check(NUMBER, numbers, bounds)


@given(
    st.sets(st.text(max_size=3), min_size=1).map(sorted),
    st.lists(st.text(max_size=3) | st.none(), min_size=2, max_size=2),
)
def test_a_range_of_texts_is_in_their_order(texts, bounds):
    check(USER, texts, bounds)


def check(keys, values, bounds):
    """The values in range are in one span each, and in their order; none of the others is."""
    low, high = bounds
    columns = [None if bound is None else keys.columns(bound) for bound in bounds]
    spans = key_spans(keys.schema, *columns)
    encoded = key_bytes([pa.array(values, keys.schema.field(0).type)]).to_pylist()
    found = [(where, key) for key in encoded for where in within(spans, key)]
    wanted = [
        key
        for value, key in zip(values, encoded, strict=True)
        if (low is None or value >= low) and (high is None or value <= high)
    ]
    assert [key for _, key in sorted(found)] == wanted, json.dumps(bounds)
