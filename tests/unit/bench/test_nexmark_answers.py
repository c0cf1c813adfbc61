import json

import pyarrow as pa
import pytest
from bench.nexmark import answers
from bench.nexmark.answers import differing
from bench.nexmark.load import parts
from bench.nexmark.truth import columns_of, event_table

SCHEMA = pa.schema([("auction", pa.int64()), ("starts", pa.string()), ("average", pa.float64())])
ROWS = [{"auction": 7, "starts": "2025-01-01T09:00:00.000Z", "average": 0.3}, {"auction": 8}]


def lines(*rows):
    return [json.dumps(row).encode() for row in rows]


def rows_of(values, schema=SCHEMA):
    return pa.concat_tables([schema.empty_table(), *answers.rows_of(values, schema)])


def wanted(*rows):
    return pa.Table.from_pylist(list(rows), SCHEMA)


def test_rows_are_read_with_the_types_that_they_should_have():
    assert rows_of(lines(*ROWS)) == wanted(*ROWS)
    assert rows_of([]) == wanted()


def test_a_column_that_should_not_be_there_is_refused():
    with pytest.raises(ValueError, match="columns that SQL has not: more"):
        rows_of(lines({**ROWS[0], "more": 1}))


def test_a_number_where_text_should_be_is_refused():
    with pytest.raises(pa.ArrowInvalid):
        rows_of(lines({"auction": 7, "starts": 5}))


def test_rows_of_closing_events_are_left_out():
    closing = {"auction": -3, "average": 1.0}
    assert rows_of(lines(ROWS[0], closing, ROWS[1])) == wanted(*ROWS)


def test_rows_that_change_together_are_rows_of_their_own():
    assert rows_of(lines({"rows": ROWS}, ROWS[0])) == wanted(*ROWS, ROWS[0])


def test_answers_are_the_same_whatever_their_order_and_a_last_digit():
    ours = rows_of(lines(ROWS[1], {**ROWS[0], "average": 0.1 + 0.2}))
    assert differing(ours, wanted(*ROWS), frozenset({"average"})) == []


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (ROWS[:1], "1 rows where SQL has 2"),
        ([ROWS[0], ROWS[0]], "[auction=8, starts=None] 0 times where SQL has average=None"),
        ([{**ROWS[0], "average": 0.31}, ROWS[1]], "average=0.31 where SQL has average=0.3"),
        ([{**ROWS[0], "average": None}, ROWS[1]], "average=None where SQL has average=0.3"),
    ],
)
def test_differences_are_said(found, words):
    assert words in "; ".join(differing(rows_of(lines(*found)), wanted(*ROWS), frozenset({"average"})))


def test_of_a_large_answer_it_is_only_said_that_it_differs():
    many = [{"auction": number} for number in range(200_001)]
    assert differing(wanted(*many[1:], many[1]), wanted(*many), frozenset({"average"})) == [
        "200001 rows where SQL has 200001, and not all the same"
    ]


def test_events_are_rows_with_the_columns_of_a_view():
    bid = {"type": "bid", "auction": 1, "bidder": 2, "price": 3, "dateTime": 1000, "arrived": 1010, "number": 4}
    (row,) = event_table("bid", [bid]).to_pylist()
    assert (row["auction"], row["dateTime"], row["arrived"], row["channel"]) == (1, 1000, 1010, None)
    assert [column.split()[-1] for column in columns_of("bid")] == list(row)
    assert "timestamp_millis(arrived) AS arrived" in columns_of("bid")


def test_no_more_than_a_part_of_the_events_is_taken_at_once():
    taken = []

    def events():
        for number in range(250_000):
            taken.append(number)
            yield {"number": number}

    sizes = [(len(part), len(taken)) for part in parts(events())]
    assert sizes == [(100_000, 100_000), (100_000, 200_000), (50_000, 250_000)]
