"""What Kafka Streams' own tests of joins of tables put in and expect; pipeline-inventory.md has which is which."""

import pytest

from sparkrelay import Integer, Json, Long, StreamsBuilder, String
from sparkrelay.testing import TopologyTestDriver

pytestmark = [pytest.mark.integration, pytest.mark.long]

LEFT, RIGHT = "left", "right"
#: Of one key: values and times, tombstones among them (AbstractJoinIntegrationTest).
BEGINNING = [
    *((LEFT, None, 1), (RIGHT, None, 2), (LEFT, "A", 3), (RIGHT, "a", 4), (LEFT, "B", 5), (RIGHT, "b", 6)),
    *((LEFT, None, 7), (RIGHT, None, 8), (LEFT, "C", 9), (RIGHT, "c", 10), (RIGHT, None, 11), (LEFT, None, 12)),
    (RIGHT, None, 13),
]
#: And rows that come late.
INPUT = [
    *BEGINNING,
    *((RIGHT, "d", 7), (LEFT, "D", 6), (LEFT, None, 2), (RIGHT, None, 3), (RIGHT, "e", 14), (LEFT, "E", 15)),
    *((LEFT, None, 10), (RIGHT, None, 9), (LEFT, "F", 4), (RIGHT, "f", 3)),
]
#: The last two have no key.
IN_ORDER = [*BEGINNING, (RIGHT, "d", 14), (LEFT, "D", 15), (LEFT, "E", 16), (RIGHT, "e", 17)]
#: How -> index of an input -> what comes of it: both values, as Java writes them, and the time; None: it is deleted.
TWO = {
    "inner": {
        3: ("A-a", 4),
        4: ("B-a", 5),
        5: ("B-b", 6),
        6: (None, 7),
        9: ("C-c", 10),
        10: (None, 11),
        14: ("D-d", 7),
        15: (None, 7),
        18: ("E-e", 15),
        19: (None, 14),
        22: ("F-f", 4),
    },
    "left": {
        2: ("A-null", 3),
        3: ("A-a", 4),
        4: ("B-a", 5),
        5: ("B-b", 6),
        6: (None, 7),
        8: ("C-null", 9),
        9: ("C-c", 10),
        10: ("C-null", 11),
        11: (None, 12),
        14: ("D-d", 7),
        15: (None, 7),
        18: ("E-e", 15),
        19: (None, 14),
        21: ("F-null", 4),
        22: ("F-f", 4),
    },
    "outer": {
        2: ("A-null", 3),
        3: ("A-a", 4),
        4: ("B-a", 5),
        5: ("B-b", 6),
        6: ("null-b", 7),
        7: (None, 8),
        8: ("C-null", 9),
        9: ("C-c", 10),
        10: ("C-null", 11),
        11: (None, 12),
        13: ("null-d", 7),
        14: ("D-d", 7),
        15: ("null-d", 7),
        16: (None, 3),
        17: ("null-e", 14),
        18: ("E-e", 15),
        19: ("null-e", 14),
        20: (None, 9),
        21: ("F-null", 4),
        22: ("F-f", 4),
    },
}


def lines(row, names):
    return None if row is None else "-".join(row.get(name) or "null" for name in names)


@pytest.mark.parametrize("how", TWO)
def test_a_table_meets_a_table(spark, how):
    """TableTableJoinIntegrationTest.testInner, testLeft, testOuter"""
    builder = StreamsBuilder()
    left, right = (builder.table(name, key=Long("k"), value=String(name[0])) for name in (LEFT, RIGHT))
    left.join(right, "k", how).to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topics = {name: driver.create_input_topic(name) for name in (LEFT, RIGHT)}
        out = driver.create_output_topic("out", key=Long())
        for index, (name, value, at) in enumerate(INPUT):
            topics[name].pipe_input(0, value, at)
            found = [(r.key, lines(r.value, "lr"), r.timestamp) for r in out.read_records()]
            assert found == ([(0, *TWO[how][index])] if index in TWO[how] else []), f"after input {index}"


#: How twice -> what comes of an input. Where Java says the same twice (KAFKA-6443) ours says it once. Marked by a
#: comment is where Java's is not the join of what the tables hold, as it says itself: the right table is in both.
_PAIRED = {3: ("A-a-a", 4), 4: ("B-a-a", 5), 5: ("B-b-b", 6), 9: ("C-c-c", 10), 14: ("D-d-d", 15)}
_LEFT = {2: ("A-null-null", 3), 8: ("C-null-null", 9), 10: ("C-null-null", 11), 11: (None, 12)}
THREE = {
    ("inner", "inner"): _PAIRED | {6: (None, 7), 10: (None, 11)},  # Java: nothing at 11
    ("inner", "left"): _PAIRED | {6: (None, 7), 10: (None, 11)},
    ("inner", "outer"): _PAIRED | {6: ("null-null-b", 7), 7: (None, 8), 10: (None, 11), 13: ("null-null-d", 14)},
    ("left", "inner"): _PAIRED | {6: (None, 7), 10: (None, 11)},
    ("left", "left"): _PAIRED | _LEFT | {6: (None, 7)},
    ("left", "outer"): _PAIRED | _LEFT | {6: ("null-null-b", 7), 7: (None, 8), 13: ("null-null-d", 14)},
    ("outer", "inner"): _PAIRED | {6: ("null-b-b", 7), 7: (None, 8), 10: (None, 11), 13: ("null-d-d", 14)},
    ("outer", "left"): _PAIRED | _LEFT | {6: ("null-b-b", 7), 7: (None, 8), 13: ("null-d-d", 14)},
    ("outer", "outer"): _PAIRED | _LEFT | {6: ("null-b-b", 7), 7: (None, 8), 13: ("null-d-d", 14)},
}


@pytest.mark.parametrize(("first", "second"), THREE)
def test_a_table_meets_another_one_twice(spark, first, second):
    """TableTableJoinIntegrationTest.testInnerInner to testOuterOuter; at 8 of (outer, inner) Java says nothing."""
    builder = StreamsBuilder()
    left, right = (builder.table(name, key=Long("k"), value=String(name[0])) for name in (LEFT, RIGHT))
    again = right.withColumnRenamed("r", "again")
    left.join(right, "k", first).join(again, "k", second).to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topics = {name: driver.create_input_topic(name) for name in (LEFT, RIGHT)}
        out = driver.create_output_topic("out", key=Long())
        for index, (name, value, at) in enumerate(IN_ORDER):
            topics[name].pipe_input(None if value in {"E", "e"} else 0, value, at)
            found = [(r.key, lines(r.value, ("l", "r", "again")), r.timestamp) for r in out.read_records()]
            wanted = THREE[first, second]
            assert found == ([(0, *wanted[index])] if index in wanted else []), f"after input {index}"


#: What is pushed to which topic, each key's value and time; and what comes of it in each way of joining.
STEPS = [
    (1, [(0, "X0", 5), (1, "X1", 6), (None, "SomeVal", 42)]),
    (2, [(0, "Y0", 0), (1, "Y1", 10), (None, "AnotherVal", 73)]),
    (1, [(key, f"XX{key}", 7) for key in range(4)]),
    (2, [(key, f"YY{key}", key * 5) for key in range(4)]),
    (1, [(key, f"XXX{key}", 6) for key in range(4)]),
    (2, [(0, None, 5), (1, None, 7)]),
    (1, [(key, f"XXXX{key}", 13) for key in range(4)]),
    (1, [(0, None, 0), (1, None, 42), (2, None, 5), (3, None, 20)]),
]
_ALONE = {
    0: [(0, "X0+null", 5), (1, "X1+null", 6)],
    2: [(0, "XX0+Y0", 7), (1, "XX1+Y1", 10), (2, "XX2+null", 7), (3, "XX3+null", 7)],
    5: [(0, "XXX0+null", 6), (1, "XXX1+null", 7)],
    6: [(0, "XXXX0+null", 13), (1, "XXXX1+null", 13), (2, "XXXX2+YY2", 13), (3, "XXXX3+YY3", 15)],
}
_PAIRS = {
    1: [(0, "X0+Y0", 5), (1, "X1+Y1", 10)],
    3: [(0, "XX0+YY0", 7), (1, "XX1+YY1", 7), (2, "XX2+YY2", 10), (3, "XX3+YY3", 15)],
    4: [(0, "XXX0+YY0", 6), (1, "XXX1+YY1", 6), (2, "XXX2+YY2", 10), (3, "XXX3+YY3", 15)],
}
EXPECTED = {
    "inner": _PAIRS
    | {
        2: [(0, "XX0+Y0", 7), (1, "XX1+Y1", 10)],
        5: [(0, None, 6), (1, None, 7)],
        6: [(2, "XXXX2+YY2", 13), (3, "XXXX3+YY3", 15)],
        7: [(2, None, 10), (3, None, 20)],
    },
    "left": _PAIRS | _ALONE | {7: [(0, None, 0), (1, None, 42), (2, None, 10), (3, None, 20)]},
    "outer": _PAIRS | _ALONE | {7: [(0, None, 0), (1, None, 42), (2, "null+YY2", 10), (3, "null+YY3", 20)]},
}


@pytest.mark.parametrize("batch", ["record", "all"])
@pytest.mark.parametrize("how", EXPECTED)
def test_what_is_pushed_and_what_comes_of_it(spark, how, batch):
    """KTableKTableInnerJoinTest, KTableKTableLeftJoinTest and KTableKTableOuterJoinTest: testJoin"""
    builder = StreamsBuilder()
    left, right = (builder.table(f"topic{n}", key=Integer("k"), value=String(f"v{n}")) for n in (1, 2))
    both = left.join(right, "k", how)
    both.selectExpr("concat(coalesce(v1, 'null'), '+', coalesce(v2, 'null')) AS both").to("out", value=String("both"))
    with TopologyTestDriver(builder.build(), spark=spark, batch=batch) as driver:
        topics = {n: driver.create_input_topic(f"topic{n}") for n in (1, 2)}
        out = driver.create_output_topic("out", key=Integer(), value=String())
        for index, (number, rows) in enumerate(STEPS):
            for key, value, at in rows:
                topics[number].pipe_input(key, value, at)
            found = sorted(((r.key, r.value, r.timestamp) for r in out.read_records()), key=lambda row: row[0])
            assert found == EXPECTED[how].get(index, []), f"after push {index}"


@pytest.mark.parametrize("how", EXPECTED)
def test_what_goes_on_is_what_was_and_what_is(spark, how):
    """KTableKTable...JoinTest.testSendingOldValue(s), by a count that takes the old rows out"""
    builder = StreamsBuilder()
    left, right = (builder.table(f"topic{n}", key=Integer("k"), value=String(f"v{n}")) for n in (1, 2))
    both = left.join(right, "k", how).selectExpr("coalesce(length(v1), 0) * 10 + coalesce(length(v2), 0) AS size")
    both.groupBy("size").count(name="sizes").to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topics = {n: driver.create_input_topic(f"topic{n}") for n in (1, 2)}
        held = {}
        for index, (number, rows) in enumerate(STEPS):
            for key, value, at in rows:
                topics[number].pipe_input(key, value, at)
            for key, text, _ in EXPECTED[how].get(index, []):
                if text is None:
                    held.pop(key, None)
                else:
                    one, other = (0 if part == "null" else len(part) for part in text.split("+"))
                    held[key] = one * 10 + other
            sizes = {row["size"]: row["count"] for row in driver.store("sizes")}
            assert sizes == {size: list(held.values()).count(size) for size in held.values()}, f"after push {index}"
