"""Message keys that are no part of the value, in every format, of streams and of tables."""

import pytest
from pyspark.sql import functions as F

from sparkrelay import Avro, Integer, Json, JsonSchema, Long, StreamsBuilder, String
from sparkrelay.errors import TopologyException
from sparkrelay.testing import TopologyTestDriver

pytestmark = pytest.mark.integration


def record(**fields):
    return {"type": "record", "name": "M", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}


TITLE, NUMBER = Avro(record(title="string")), Avro(record(n="long"))
DIE_HARD = {"title": "Die Hard"}


def test_values_have_the_fields_of_their_schema_and_not_the_key(spark):
    builder = StreamsBuilder(spark)
    films = builder.stream("in", key=Long("id"), value=TITLE)
    films.to("by-id", key=Long("id"), value=TITLE)
    films.to("as-they-came", value=TITLE)
    films.drop("id").withColumn("n", F.length("title")).to("by-length", key=Integer("n"), value=TITLE)
    films.withColumnRenamed("id", "film").to("renamed", value=TITLE)
    films.select("id", "title").to("text", value=Avro('"string"'))
    films.select("id", F.col("title").alias("value")).to("by-name", key="id", value=Avro('"string"'))
    films.to("json", key=Long("id"), value=Json(without_key=True))
    films.to("json-as-they-came", value=Json(without_key=True))
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        driver.create_input_topic("in").pipe_input(7, DIE_HARD)

        def written(topic):
            (found,) = driver.create_output_topic(topic).read_records()
            return found.key, found.value

        same = (7).to_bytes(8, "big")
        assert written("by-id") == (7, DIE_HARD)
        assert written("as-they-came") == (same, DIE_HARD)
        assert written("by-length") == (8, DIE_HARD)
        assert written("renamed") == (same, DIE_HARD)
        assert written("text") == (same, "Die Hard")
        assert written("by-name") == (7, "Die Hard")
        assert written("json") == (7, DIE_HARD)
        assert written("json-as-they-came") == (same, DIE_HARD)


def test_tables_have_their_keys_outside_too_and_delete_by_them(spark):
    builder = StreamsBuilder(spark)
    films = builder.stream("in", key=Long("id"), value=Json("title string, year int"))
    titles = films.groupBy("title").agg(F.count("*").alias("n"))
    titles.to("by-title", key=String("title"), value=NUMBER)
    titles.to("by-its-key", value=NUMBER)
    titles.where("n % 2 = 1").to("odd", value=Json(without_key=True))
    films.groupBy("title", "year").agg(F.count("*").alias("n")).to("of-years", value=Json(without_key=True))
    table = builder.table("films", key=Long("id"), value=Json("n long"), name="films")
    table.to("numbers", value=NUMBER)
    with TopologyTestDriver(builder.build(), spark=spark, batch="all") as driver:
        source, changes = driver.create_input_topic("in"), driver.create_input_topic("films")
        source.pipe_input(7, {**DIE_HARD, "year": 1988})
        changes.pipe_input(1, {"n": 5})
        driver.process()
        source.pipe_input(7, {**DIE_HARD, "year": 1988})
        changes.pipe_input(1, None)

        def written(topic):
            return [(one.key, one.value) for one in driver.create_output_topic(topic).read_records()]

        assert written("by-title") == [("Die Hard", {"n": 1}), ("Die Hard", {"n": 2})]
        assert written("by-its-key") == [(b"Die Hard", {"n": 1}), (b"Die Hard", {"n": 2})]
        assert [value for _, value in written("odd")] == [{"n": 1}, None]
        assert [value for _, value in written("of-years")] == [{"n": 1}, {"n": 2}]
        assert [key for key, _ in written("numbers")] == [(1).to_bytes(8, "big")] * 2
        assert [value for _, value in written("numbers")] == [{"n": 5}, None]


def test_a_script_says_it_by_an_option(spark):
    builder = StreamsBuilder(spark)
    builder.script("""
        CREATE STREAM films (id BIGINT, title STRING) OPTIONS (topic 'in', key 'id');
        CREATE STREAM titles (id BIGINT, title STRING) OPTIONS (topic 'out', key 'id', without_key 'true');
        INSERT INTO titles SELECT id, title FROM films
    """)
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        driver.create_input_topic("in").pipe_input(7, DIE_HARD)
        (found,) = driver.create_output_topic("out").read_records()
        assert (found.key, found.value) == (7, DIE_HARD)
    with pytest.raises(TopologyException, match="without_key 'yes' of titles must be true or false"):
        StreamsBuilder(spark).script("""
            CREATE STREAM films (id BIGINT, title STRING) OPTIONS (topic 'in', key 'id');
            CREATE STREAM titles (id BIGINT, title STRING) OPTIONS (key 'id', without_key 'yes');
            INSERT INTO titles SELECT id, title FROM films
        """)


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (lambda s: s.drop("id").to("out", key=Long("id"), value=TITLE), "writes column 'id', but the columns are "),
        (lambda s: s.withColumn("n", F.lit(1)).to("out", key=Long("id"), value=TITLE), "has no field 'n', but title"),
        (lambda s: s.drop("id").to("out", value=Json(without_key=True)), "the message key, which is none of title"),
        (lambda s: s.select("id").to("out", value=Json(without_key=True)), "leaves no column of id"),
    ],
)
def test_what_is_no_key_is_not_left_out(spark, write, words):
    builder = StreamsBuilder(spark)
    write(builder.stream("in", key=Long("id"), value=TITLE))
    with pytest.raises(TopologyException) as refused:
        TopologyTestDriver(builder.build(), spark=spark)
    assert words in str(refused.value)


def test_the_key_is_left_out_only_where_a_schema_lacks_it():
    schema = JsonSchema('{"title": "N", "type": "object", "properties": {"n": {"type": "integer"}}}')
    assert schema.leaves_out(["id", "n"]) == {"id"}
    assert JsonSchema().leaves_out(["id"]) == set()
    assert Json().leaves_out(["id"]) == set()


def test_a_schema_is_for_reading_and_without_key_for_writing():
    with pytest.raises(ValueError, match="a schema is for reading, and without_key for writing"):
        Json("id long", without_key=True)
    with pytest.raises(TypeError, match="takes True or False"):
        Json(without_key="id")
    assert Json(without_key=True).fingerprint == "Json(without_key=True)"
    assert Json().fingerprint == "Json()"
