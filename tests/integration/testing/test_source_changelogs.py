"""Tables whose source topic is their changelog (``topology.optimization``), on the test driver."""

import random

import pytest
from pyspark.sql import functions as F
from tests.marks import first_of

from sparkrelay import Json, Long, StreamsBuilder, String
from sparkrelay.testing import TopologyTestDriver

pytestmark = pytest.mark.integration

REUSED = {"topology.optimization": "reuse.ktable.source.topics"}
USER = Json("name string, country string")
CLICK = Json("page string, n long")


def users_and_clicks(builder):
    return (
        builder.table("users", key=String("user"), value=USER),
        builder.stream("clicks", key=String("user"), value=CLICK),
    )


def changelogs(driver):
    return sorted(path.name for path in (driver._folder / "topics").iterdir() if "changelog" in path.name)


def test_a_table_is_restored_from_its_topic_and_writes_no_copy(spark):
    builder = StreamsBuilder()
    builder.table("users", key=String("user"), value=USER, name="people").select("user", "name").to("names")
    with TopologyTestDriver(builder.build(), REUSED, spark=spark, partitions=2) as driver:
        topic, names = driver.create_input_topic("users"), driver.create_output_topic("names", key=String())
        topic.pipe_input("ada", {"name": "Ada", "country": "UK"}, 1)
        topic.pipe_input("ada", {"name": "Ada L.", "country": "UK"}, 5)
        topic.pipe_input("bob", {"name": "Bob"}, 3)
        topic.pipe_input("cid", {"name": "Cid"}, 4)
        topic.pipe_input("cid", None, 9)
        topic.pipe_input(None, {"name": "nobody"}, 9)
        rows = [{"user": "ada", "name": "Ada L.", "country": "UK"}, {"user": "bob", "name": "Bob", "country": None}]
        assert sorted(driver.store("people"), key=lambda row: row["user"]) == rows
        assert len(names.read_rows()) == 5
        driver.restart(from_changelog=True)
        assert sorted(driver.store("people"), key=lambda row: row["user"]) == rows
        assert names.is_empty
        topic.pipe_input("ada", {"name": "Ada L.", "country": "UK"}, 12)
        topic.pipe_input("bob", None, 10)
        assert [(record.key, record.value) for record in names.read_records()] == [("bob", None)]
        assert changelogs(driver) == []


def test_event_times_and_typed_keys_are_restored_as_they_were_read(spark):
    builder = StreamsBuilder()
    value = Json("at bigint, price double, tags array<string>")
    builder.table("prices", key=Long("item"), value=value, timestamp="at").to("out")
    with TopologyTestDriver(builder.build(), REUSED, spark=spark) as driver:
        prices, out = driver.create_input_topic("prices"), driver.create_output_topic("out")
        prices.pipe_input(7, {"at": 50, "price": 1.5, "tags": ["a", None]}, 1)
        before = driver.store("prices-table")
        driver.restart(from_changelog=True)
        assert driver.store("prices-table") == before
        out.read_rows()
        # As old as the stored row, which is of its event time: it changes nothing. An older one is another row.
        prices.pipe_input(7, {"at": 50, "price": 1.5, "tags": ["a", None]}, 99)
        assert out.is_empty


def test_what_does_not_decode_is_skipped_as_it_is_read(spark):
    builder = StreamsBuilder()
    builder.table("users", key=String("user"), value=USER).to("out")
    skipping = {**REUSED, "deserialization.exception.handler": "log-and-continue"}
    with TopologyTestDriver(builder.build(), skipping, spark=spark) as driver:
        users = driver.create_input_topic("users")
        users.pipe_input("ada", {"name": "Ada"}, 1)
        users.pipe_input("ada", b"{ no json", 2)
        driver.restart(from_changelog=True)
        assert driver.store("users-table") == [{"user": "ada", "name": "Ada", "country": None}]


@pytest.mark.long
@pytest.mark.parametrize("seed", first_of(range(2)))
def test_joins_groups_and_restores_are_as_with_a_changelog(spark, seed):
    """A table with a filter and several ways out, a join, and groups beside it."""

    def pipeline():
        builder = StreamsBuilder()
        users, clicks = users_and_clicks(builder)
        clicks.join(users, on="user", how="left").select("user", "name", "n").to("joined")
        clicks.groupBy("user").agg(F.sum("n").alias("n")).to("sums")
        users.where("country is not null").to("known")
        users.groupBy("country").agg(F.count("*").alias("users")).to("countries")
        return builder.build()

    found = []
    for config in ({}, REUSED):
        chance = random.Random(seed)
        with TopologyTestDriver(pipeline(), config, spark=spark, partitions=2, batch="all") as driver:
            users, clicks = driver.create_input_topic("users"), driver.create_input_topic("clicks")
            outputs = [driver.create_output_topic(name) for name in ("joined", "sums", "known", "countries")]
            read = []
            for step in range(8):
                for at in range(chance.randint(1, 6)):
                    user = f"u{chance.randint(1, 5)}"
                    row = (
                        None
                        if chance.random() < 0.2
                        else {"name": str(step), "country": chance.choice([None, "a", "b"])}
                    )
                    users.pipe_input(user, row, step * 10 + at)
                    clicks.pipe_input(user, {"n": chance.randint(1, 9)}, step * 10 + at)
                read.append([[(r.key, r.value, r.timestamp) for r in output.read_records()] for output in outputs])
                if step in {2, 5}:
                    driver.restart(from_changelog=step == 5)
            stores = [driver.store(name) for name in ("users-table", "clicks-by-user", "users-table-by-country")]
            found.append((read, stores))
            assert any("users-table-changelog" in name for name in changelogs(driver)) == (not config)
    assert found[0] == found[1]
