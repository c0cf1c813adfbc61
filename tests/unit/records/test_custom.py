import dataclasses
import pickle

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from sparkrelay.errors import SerializationException
from sparkrelay.records.custom import check_decode
from sparkrelay.records.custom_format import CustomFormat
from sparkrelay.records.formatted import columns_to_format, format_to_columns

SCHEMA = pa.schema([("user", pa.string()), ("amount", pa.int64())])


class Csv(CustomFormat):
    schema = "user string, amount bigint"

    def __init__(self, separator=","):
        self.separator = separator
        self.calls = 0

    def decode(self, values):
        self.calls += 1
        pairs = [text.split(self.separator) for text in values.cast(pa.string()).to_pylist()]
        rows = [{"user": user, "amount": int(amount)} for user, amount in pairs]
        return pa.RecordBatch.from_pylist(rows, pa.schema([("user", pa.string()), ("amount", pa.int32())]))

    def encode(self, rows):
        return pc.binary_join_element_wise(rows.column(0), rows.column(1).cast(pa.string()), self.separator)


def read(form, values, schema=SCHEMA):
    columns, bad = format_to_columns(pa.array(values, pa.binary()), form, "value", schema)
    return pa.RecordBatch.from_pydict(columns).to_pylist(), [(one.index, one.reason) for one in bad]


def returning(found):
    class Fixed(CustomFormat):
        def decode(self, values):
            return found(values)

        def encode(self, rows):
            return found(rows)

    return Fixed()


def test_values_are_read_and_written():
    form = Csv()
    rows, bad = read(form, [b"ada,1", None, b"bob,2"])
    assert (rows, bad) == (
        [{"user": "ada", "amount": 1}, {"user": None, "amount": None}, {"user": "bob", "amount": 2}], [],
    )  # fmt: skip
    assert form.calls == 1
    batch = pa.RecordBatch.from_pylist(rows, SCHEMA)
    left_out = pa.array([False, True, False])
    assert columns_to_format(batch, form, left_out).to_pylist() == [b"ada,1", None, b"bob,2"]
    assert read(form, [None, None]) == ([{"user": None, "amount": None}] * 2, [])
    assert read(form, []) == ([], [])
    assert read(form, [b"ada,1"], pa.schema([("amount", pa.int64())])) == ([{"amount": 1}], [])


def test_the_values_that_fail_alone_are_bad():
    form = Csv()
    values = [b"u,%d" % number for number in range(100)]
    values[17], values[90], values[3] = b"u,x", b"\xff,1", None
    rows, bad = read(form, values)
    assert [row["amount"] for row in rows] == [None if n in {3, 17, 90} else n for n in range(100)]
    assert [index for index, _ in bad] == [17, 90]
    assert bad[0][1].startswith("Csv.decode() raised ValueError: invalid literal")
    assert form.calls < 40


def test_another_number_of_rows_is_bad():
    form = returning(lambda values: pa.RecordBatch.from_pydict({"user": ["a"] * 2, "amount": [1] * 2}))
    rows, bad = read(form, [b"1", b"2", b"3"])
    assert [row["user"] for row in rows] == [None, "a", "a"]
    assert bad == [(0, "Fixed.decode() returned 2 rows for 1 values")]


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (["a"], r"returned a list; it must be a pyarrow.RecordBatch"),
        (pa.array([1]), r"returned an array of int64; it must be"),
        (pa.RecordBatch.from_pydict({"user": ["a"]}), r"returned the columns user, but .* of Fixed has 'amount'"),
        (
            pa.RecordBatch.from_pydict({"user": ["a"], "amount": [[1]]}),
            r"column 'amount' as list<item: int64>, and the schema of Fixed has int64 there",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_for_all_records_ends_the_batch(found, reason):
    form = returning(lambda values: found)
    with pytest.raises(SerializationException, match=reason):
        read(form, [b"1"])


def test_a_value_that_the_schema_cannot_hold_is_bad():
    form = returning(lambda values: pa.table({"user": values.cast(pa.string()), "amount": values.cast(pa.string())}))
    rows, bad = read(form, [b"1", b"x", b"3"])
    assert [row["amount"] for row in rows] == [1, None, 3]
    assert "'amount' that cannot be int64" in bad[0][1]


def test_text_that_is_no_utf8_is_bad():
    def decode(values):
        text = pa.Array.from_buffers(pa.string(), len(values), values.buffers(), offset=values.offset)
        return pa.StructArray.from_arrays([text, pa.array([1] * len(values))], ["user", "amount"])

    rows, bad = read(returning(decode), [b"a", b"\xff", b"c"])
    assert [row["user"] for row in rows] == ["a", None, "c"]
    assert [index for index, _ in bad] == [1]


def test_decode_is_tried_without_values():
    check_decode(Csv(), SCHEMA)
    with pytest.raises(SerializationException, match=r"raised IndexError: .*for an array without values"):
        check_decode(returning(lambda values: values[0]), SCHEMA)
    with pytest.raises(SerializationException, match=r"CustomFormat has no decode\(\)"):
        check_decode(CustomFormat(), SCHEMA)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ([b"a"], "returned a list"),
        (pa.array([1]), "returned an array of int64"),
        (pa.array([b"a", b"b"]), "returned 2 values for 1 rows"),
        (None, "returned a NoneType"),
    ],
)
def test_what_encode_returns_is_looked_at(found, reason):
    batch = pa.RecordBatch.from_pydict({"user": ["a"]})
    with pytest.raises(SerializationException, match=rf"Fixed.encode\(\) {reason}"):
        columns_to_format(batch, returning(lambda rows: found))


def test_what_encode_raises_names_the_class():
    batch = pa.RecordBatch.from_pydict({"user": ["a"]})
    with pytest.raises(SerializationException, match=r"Fixed.encode\(\) raised ZeroDivisionError"):
        columns_to_format(batch, returning(lambda rows: 1 // 0))


def test_an_object_says_what_it_holds():
    assert Csv().fingerprint == "Csv(calls=0, schema='user string, amount bigint', separator=',')"
    assert str(Csv(";")) != str(Csv())
    copy = pickle.loads(pickle.dumps(Csv(";")))
    assert copy.separator == ";"

    class Typed(CustomFormat):
        schema = pa.schema([("n", pa.int8())])

    assert Typed().fingerprint == "Typed(schema=n: int8)"


def test_dataclasses_can_be_formats():
    @dataclasses.dataclass
    class Wide(CustomFormat):
        width: int = 3

    @dataclasses.dataclass(frozen=True, slots=True)
    class Narrow(CustomFormat):
        width: int = 3

    for form in (Wide(4), Narrow(4)):
        assert "width=4" in form.fingerprint
