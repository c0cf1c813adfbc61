# ruff: noqa: N803 - everybody writes F

import textwrap

from sparkrelay.records.formats import Json, Long, Raw, String
from sparkrelay.topology.describe import format_text


def test_a_description_reads_as_kafka_streams_does(builder, F):
    flights = builder.stream(
        "flights",
        key=String("carrier"),
        value=Json("origin string,\n   delay double, time timestamp"),
        timestamp="time",
        name="planes",
    )
    late = flights.where("delay > 0").withColumn("minutes", F.col("delay") / 60.0)
    late.to("late")
    late.groupBy("carrier", F.window("time", "1 day")).agg(F.sum("minutes").alias("total")).to_stream().where(
        "total > 5D"
    ).to("by-carrier", key=String("carrier"), value=Json())
    late.groupBy("origin").count(name="airports").to("airports")
    text = """
    Topologies:
       Sub-topology: 0
        Source: planes (topics: [flights])
          key: String("carrier"), value: Json("origin string, delay double, time timestamp"), timestamp: time
          --> planes-where-1
        Processor: planes-where-1 (stores: [])
          where delay > CAST(0 AS double)
          --> planes-with-1
          <-- planes
        Processor: planes-with-1 (stores: [])
          with minutes = delay / double '60.0'
          --> planes-to-late, planes-where-2, planes-where-5
          <-- planes-where-1
        Sink: planes-to-late (topic: late)
          <-- planes-with-1
        Processor: planes-where-2 (stores: [])
          where time IS NOT NULL
          --> planes-with-2
          <-- planes-with-1
        Processor: planes-with-2 (stores: [])
          with window = window(time, 1 day, 0:00:00)
          --> planes-where-3
          <-- planes-where-2
        Processor: planes-where-3 (stores: [])
          where carrier IS NOT NULL
          --> planes-by-carrier-window
          <-- planes-with-2
        Processor: planes-by-carrier-window (stores: [planes-by-carrier-window])
          groupBy(carrier, window).agg(sum(minutes) AS total)
          --> planes-where-4
          <-- planes-where-3
        Processor: planes-where-4 (stores: [])
          where total > double '5.0'
          --> planes-by-carrier-window-to-by-carrier
          <-- planes-by-carrier-window
        Sink: planes-by-carrier-window-to-by-carrier (topic: by-carrier)
          key: String("carrier"), value: Json()
          <-- planes-where-4
        Processor: planes-where-5 (stores: [])
          where origin IS NOT NULL
          --> airports-repartition
          <-- planes-with-1
        Sink: airports-repartition (topic: airports-repartition)
          key: origin
          <-- planes-where-5

       Sub-topology: 1
        Source: airports-repartition (topics: [airports-repartition])
          --> airports
        Processor: airports (stores: [airports])
          groupBy(origin).agg(count(1) AS count)
          --> airports-to-airports
          <-- airports-repartition
        Sink: airports-to-airports (topic: airports)
          <-- airports
    """
    assert builder.build().describe().strip() == textwrap.dedent(text).strip()


def test_formats_are_shown_as_they_are_written():
    class StructType:
        def simpleString(self):
            return "struct<a:int>"

    assert format_text(None) is None
    assert format_text(Raw()) == "Raw()"
    assert format_text(Long("n")) == 'Long("n")'
    assert format_text(Json(StructType())) == "Json(struct<a:int>)"


def test_a_graph_has_every_node_once_and_topics_between(builder):
    users = builder.table("users", key=String("user"), value=Json("name string"))
    clicks = builder.stream(["clicks", "taps"], key=String("user"), value=Json("page string, `x\\y` int"))
    clicks.join(users, "user").groupBy("page").count().to("pages")
    users.show(3)
    lines = [line.strip() for line in builder.build().to_dot().splitlines()]
    assert lines[0] == "digraph topology {"
    assert lines[-1] == "}"
    labels = {line.partition(" [label=")[0]: line for line in lines if " [label=" in line}
    assert len(labels) == sum(" [label=" in line for line in lines)
    topics = {line.split('"')[1]: line.split()[0] for line in lines if "shape=cds" in line}
    assert sorted(topics) == ["clicks", "clicks-taps-by-page-repartition", "pages", "taps", "users"]
    shown = next(name for name, line in labels.items() if "show(3)" in line)
    (kept,) = (name for name, line in labels.items() if "Processor: users-table (" in line)
    assert f"{kept} -> {shown};" in lines
    (writer,) = (line.split()[0] for line in lines if line.endswith(f"-> {topics['pages']};"))
    assert "topic: pages" in labels[writer]
    assert r"`x\\y` int" in next(line for line in lines if "Source: clicks-taps" in line)


def test_a_picture_shows_no_empty_list_of_stores(builder):
    clicks = builder.stream("clicks", key=String("user"), value=Json("page string"))
    clicks.where("page is not null").groupBy("page").count().to("pages")
    topology = builder.build()
    labels = [node["label"] for node in topology.graph()["nodes"]]
    assert "clicks-where-1" in labels
    assert any(label.endswith(" (stores: [clicks-by-page])") for label in labels)
    assert "(stores: [])" not in topology.to_dot()
    assert "Processor: clicks-where-1 (stores: [])" in topology.describe(), "as Kafka Streams has it"


def test_a_description_shows_what_is_done_with_rows_that_go_nowhere(builder):
    builder.stream("clicks", key=String("user"), value=Json("page string")).show()
    assert builder.build().describe().splitlines()[2:9] == [
        "    Source: clicks (topics: [clicks])",
        '      key: String("user"), value: Json("page string")',
        "      --> show",
        "    Processor: clicks-show (stores: [])",
        "      show(20)",
        "      --> none",
        "      <-- clicks",
    ]


def test_late_rows_have_a_way_of_their_own(builder, F):
    flights = builder.stream("flights", key=String("carrier"), value=Json("at timestamp"), name="planes")
    hours = flights.withWatermark("at", "1 minute").groupBy("carrier", F.window("at", "1 hour"))
    hours.agg(F.count("*"), name="counts", late_to="late")
    text = builder.build().describe()
    assert "Processor: counts-late (stores: [counts])\n      late rows\n      --> planes-to-late" in text
    assert "Sink: planes-to-late (topic: late)\n      <-- counts-late" in text
    assert builder.build().sink_topics == {"late"}


def test_a_lookup_s_further_conditions_are_said(builder):
    builder.stream("clicks", key=String("user"), value=Json("page string, seconds int"))
    builder.table("users", key=String("user"), value=Json("city string, age int"))
    on = "clicks.user = users.user AND seconds > age"
    builder.sql(f"SELECT page, city FROM clicks LEFT JOIN users ON {on}").to("cities")
    builder.sql(f"SELECT page FROM clicks LEFT ANTI JOIN users ON {on}").to("others")
    text = builder.build().describe()
    assert "join(user, left, seconds > age)" in text
    assert "join(user, left_anti, seconds > age)" in text
