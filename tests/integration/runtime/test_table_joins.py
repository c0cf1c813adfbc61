"""Joined tables of real instances: in two of them, over a move, with and without the state of before."""

import pytest

from sparkrelay import Json, StreamsBuilder, String

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


@pytest.fixture
def topics(make_topic):
    """Both tables' topics, a stream's, and what is made of them."""
    return make_topic("users", 2), make_topic("accounts", 2), make_topic("clicks", 2), make_topic("both", 1)


@pytest.fixture
def start(instance, topics, tmp_path):
    """`start(state)` starts an instance with that state."""

    def run(state="state", **settings):
        builder = StreamsBuilder()
        users = builder.table(topics[0], key=String("user"), value=Json("name string"), name="users")
        accounts = builder.table(topics[1], key=String("user"), value=Json("balance long"), name="accounts")
        rich = accounts.where("balance > 0")
        clicks = builder.stream(topics[2], key=String("user"), value=Json("page string")).groupBy("user").count()
        joined = users.join(rich, "user", "left").join(clicks, "user", "left")
        joined.to(topics[3], value=Json())
        streams = instance(builder, {"state.dir": str(tmp_path / state), **settings})
        streams.start()
        return streams

    return run


def row(user, **columns):
    return {"user": user, "name": user.upper(), **columns}


@pytest.mark.long
def test_rows_are_joined_wherever_they_are_kept(start, topics, produce, wait_for_table):
    """The proof on a real broker; tests/integration/testing/test_table_joins.py has what rows are joined."""
    names = [f"user-{number}" for number in range(8)]
    produce(topics[0], [(name, {"name": name.upper()}) for name in names])
    with start("one") as one:
        produce(topics[1], [(name, {"balance": number}) for number, name in enumerate(names)])
        expected = {
            name.encode(): row(name, **({"balance": number} if number else {})) for number, name in enumerate(names)
        }
        wait_for_table(topics[3], expected, one)
        with start("other", **{"num.standby.replicas": 0}) as other:
            produce(topics[2], [(name, {"page": "p"}) for name in names for _ in range(3)])
            for value in expected.values():
                value["count"] = 3
            wait_for_table(topics[3], expected, other)
            assert one.exception() is None
    # A third one restores both stores from their changelogs; what has changed meanwhile finds the other side there.
    produce(topics[1], [(names[1], {"balance": 0}), (names[2], None), (names[0], {"balance": 7})])
    produce(topics[0], [(names[3], None)])
    with start("third") as third:
        del expected[names[1].encode()]["balance"], expected[names[2].encode()]["balance"]
        expected[names[0].encode()]["balance"] = 7
        expected[names[3].encode()] = None
        wait_for_table(topics[3], expected, third)
