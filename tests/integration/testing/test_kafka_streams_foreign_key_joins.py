"""What Kafka Streams' own tests of foreign-key joins put in and expect; pipeline-inventory.md has which is which."""

import pytest

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.testing import TopologyTestDriver

pytestmark = [pytest.mark.integration, pytest.mark.long]

STORE = "left-table-selectExpr-join-right-table"
#: A name of theirs -> inputs, each with what comes of it of an inner and of a left join. The left value names the right
#: key behind "|". Where Java deletes what an inner join has never had, nothing comes here: what is joined is stored.
CASES = {
    "doJoinFromLeftThenDeleteLeftEntity": [
        ("right", "rhs1", "rhsValue1", {}, {}),
        ("right", "rhs2", "rhsValue2", {}, {}),
        ("right", "rhs3", "rhsValue3", {}, {}),
        ("left", "lhs1", "lhsValue1|rhs1", *2 * [{"lhs1": "lhsValue1|rhs1,rhsValue1"}]),
        ("left", "lhs2", "lhsValue2|rhs2", *2 * [{"lhs2": "lhsValue2|rhs2,rhsValue2"}]),
        ("left", "lhs3", "lhsValue3|rhs1", *2 * [{"lhs3": "lhsValue3|rhs1,rhsValue1"}]),
        ("left", "lhs1", None, *2 * [{"lhs1": None}]),
    ],
    "doJoinFromLeftThenUpdateFkThenRevertBack": [
        ("right", "rhs1", "rhsValue1", {}, {}),
        ("right", "rhs2", "rhsValue2", {}, {}),
        ("left", "lhs1", "lhsValue1|rhs1", *2 * [{"lhs1": "lhsValue1|rhs1,rhsValue1"}]),
        ("left", "lhs1", "lhsValue1|rhs2", *2 * [{"lhs1": "lhsValue1|rhs2,rhsValue2"}]),
        ("left", "lhs1", "lhsValue1|rhs1", *2 * [{"lhs1": "lhsValue1|rhs1,rhsValue1"}]),
    ],
    "doJoinFromRightThenDeleteRightEntity": [
        ("left", "lhs1", "lhsValue1|rhs1", {}, {"lhs1": "lhsValue1|rhs1,null"}),
        ("left", "lhs2", "lhsValue2|rhs2", {}, {"lhs2": "lhsValue2|rhs2,null"}),
        ("left", "lhs3", "lhsValue3|rhs1", {}, {"lhs3": "lhsValue3|rhs1,null"}),
        (
            *("right", "rhs1", "rhsValue1"),
            *2 * [{"lhs1": "lhsValue1|rhs1,rhsValue1", "lhs3": "lhsValue3|rhs1,rhsValue1"}],
        ),
        ("right", "rhs2", "rhsValue2", *2 * [{"lhs2": "lhsValue2|rhs2,rhsValue2"}]),
        ("right", "rhs3", "rhsValue3", {}, {}),
        (
            *("right", "rhs1", None),
            {"lhs1": None, "lhs3": None},
            {"lhs1": "lhsValue1|rhs1,null", "lhs3": "lhsValue3|rhs1,null"},
        ),
    ],
    "shouldEmitTombstoneWhenDeletingNonJoiningRecords": [
        ("left", "lhs1", "lhsValue1|rhs1", {}, {"lhs1": "lhsValue1|rhs1,null"}),
        ("left", "lhs1", None, {}, {"lhs1": None}),
        ("left", "lhs1", None, {}, {}),
    ],
    "shouldNotEmitTombstonesWhenDeletingNonExistingRecords": [("left", "lhs1", None, {}, {})],
    "joinShouldProduceNullsWhenValueHasNonMatchingForeignKey": [
        ("left", "lhs1", "lhsValue1|rhs1", {}, {"lhs1": "lhsValue1|rhs1,null"}),
        ("left", "lhs1", "lhsValue1|rhs2", {}, {"lhs1": "lhsValue1|rhs2,null"}),
        ("left", "lhs1", "lhsValue1|rhs3", {}, {"lhs1": "lhsValue1|rhs3,null"}),
        ("right", "rhs1", "rhsValue1", {}, {}),
        ("left", "lhs1", "lhsValue1|rhs1", *2 * [{"lhs1": "lhsValue1|rhs1,rhsValue1"}]),
        ("left", "lhs1", "lhsValue1|rhs2", {"lhs1": None}, {"lhs1": "lhsValue1|rhs2,null"}),
    ],
    "shouldUnsubscribeOldForeignKeyIfLeftSideIsUpdated": [
        ("right", "rhs1", "rhsValue1", {}, {}),
        ("right", "rhs2", "rhsValue2", {}, {}),
        ("left", "lhs1", "lhsValue1|rhs1", *2 * [{"lhs1": "lhsValue1|rhs1,rhsValue1"}]),
        ("left", "lhs1", "lhsValue1|rhs2", *2 * [{"lhs1": "lhsValue1|rhs2,rhsValue2"}]),
        ("right", "rhs1", "rhsValue1Delta", {}, {}),
    ],
    "shouldEmitRecordOnNullForeignKeyForLeftJoins": [("left", "lhs1", "lhsValue1", {}, {"lhs1": "lhsValue1,null"})],
    "shouldEmitRecordWhenOldAndNewFkDiffer": [
        ("left", "lhs1", "lhsValue1|rhs1", {}, {"lhs1": "lhsValue1|rhs1,null"}),
        ("left", "lhs1", "lhsValue1", {}, {"lhs1": "lhsValue1,null"}),
    ],
    #: Neither side has versions.
    "shouldIgnoreOutOfOrderRecordsIffVersioned": [
        ("right", "rhs1", "rhsValue1", {}, {}, 4),
        ("left", "lhs1", "lhsValue1|rhs1", *2 * [{"lhs1": "lhsValue1|rhs1,rhsValue1"}], 3),
        ("left", "lhs2", "lhsValue2|rhs1", *2 * [{"lhs2": "lhsValue2|rhs1,rhsValue1"}], 5),
        ("left", "lhs2", None, *2 * [{"lhs2": None}], 6),
        ("left", "lhs1", "lhsValue1_ooo|rhs1", *2 * [{"lhs1": "lhsValue1_ooo|rhs1,rhsValue1"}], 2),
        ("left", "lhs2", "lhsValue2_ooo|rhs1", *2 * [{"lhs2": "lhsValue2_ooo|rhs1,rhsValue1"}], 2),
        ("left", "lhs1", None, *2 * [{"lhs1": None}], 2),
        ("left", "lhs1", "lhsValue1_new|rhs1", *2 * [{"lhs1": "lhsValue1_new|rhs1,rhsValue1"}], 8),
        ("left", "lhs2", "lhsValue2_new|rhs1", *2 * [{"lhs2": "lhsValue2_new|rhs1,rhsValue1"}], 8),
        (
            *("right", "rhs1", "rhsValue1_ooo"),
            *2 * [{f"lhs{n}": f"lhsValue{n}_new|rhs1,rhsValue1_ooo" for n in (1, 2)}],
            1,
        ),
        (
            *("right", "rhs1", None),
            {"lhs1": None, "lhs2": None},
            {f"lhs{n}": f"lhsValue{n}_new|rhs1,null" for n in (1, 2)},
            1,
        ),
        (
            *("right", "rhs1", "rhsValue1_new"),
            *2 * [{f"lhs{n}": f"lhsValue{n}_new|rhs1,rhsValue1_new" for n in (1, 2)}],
            6,
        ),
    ],
}


def line(row, *names):
    return None if row is None else ",".join(row.get(name) or "null" for name in names)


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("case", CASES)
def test_a_left_value_names_a_right_key(spark, case, how):
    """KTableKTableForeignKeyJoinIntegrationTest, its store and its join with the left table again."""
    builder = StreamsBuilder()
    left = builder.table("left", key=String("k"), value=String("l"))
    left = left.selectExpr("k", "l", "nullif(substring_index(l, '|', -1), l) AS fk")
    right = builder.table("right", key=String("fk"), value=String("r"))
    both = left.join(right, "fk", how)
    both.to("out", value=Json())
    both.join(left.selectExpr("k", "l AS again"), "k", how).to("rejoined", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topics = {name: driver.create_input_topic(name) for name in ("left", "right")}
        outs = [driver.create_output_topic(name, key=String()) for name in ("out", "rejoined")]
        kept = {}
        for index, (name, key, value, *expected) in enumerate(CASES[case]):
            wanted, at = expected[how == "left"], expected[2] if len(expected) > 2 else index
            topics[name].pipe_input(key, value, at)
            out, again = ({r.key: r.value for r in topic.read_records()} for topic in outs)
            assert {k: line(row, "l", "r") for k, row in out.items()} == wanted, f"after input {index}"
            for k, row in wanted.items():
                # What is joined follows in a later micro-batch than the left row.
                assert line(again[k], "l", "r") == row
                assert row is None or again[k]["again"] == again[k]["l"]
            kept = {k: row for k, row in (kept | wanted).items() if row is not None}
            assert {row["k"]: line(row, "l", "r") for row in driver.store(STORE)} == kept
