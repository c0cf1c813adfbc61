"""What transformWithState writes down, and what it refuses."""

import pytest

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.errors import TopologyException
from sparkrelay.operators.process.step import Transformation
from sparkrelay.topology.event_time import EventTime


class Processor:
    def init(self, handle):
        pass

    def handleInputRows(self, key, rows, times):
        return iter(())

    def handleExpiredTimer(self, key, times, info):
        return iter(())

    def close(self):
        pass


def grouped(builder=None, *columns, delay=None):
    builder = StreamsBuilder() if builder is None else builder
    rows = builder.stream("clicks", key=String("user"), value=Json("page string, n long, at timestamp"))
    if delay is not None:
        rows = rows.withWatermark("at", delay)
    return rows.groupBy(*(columns or ("user",)))


def transformed(*more, columns=(), delay=None, **named):
    builder = StreamsBuilder()
    arguments = (Processor(), "user string, n long", "Append", "None")
    grouped(builder, *columns, delay=delay).transformWithState(*arguments[: 4 - len(more)], *more, **named).to("out")
    return builder.build()


def test_it_is_the_stateful_step_of_its_leg():
    topology = transformed()
    (leg,) = topology.legs
    assert isinstance(leg.emitting, Transformation)
    assert leg.id == "store:clicks-transformed-by-user"
    assert (
        leg.emitting.text == "groupBy(user).transformWithState(Processor, struct<user:string,n:bigint>, Append, None)"
    )
    assert leg.emitting.watermark is None
    assert topology.internal_topics == {"clicks-transformed-by-user-changelog"}
    assert "transformWithState(Processor" in topology.describe()


def test_groups_by_another_column_go_through_a_topic_of_its_name():
    topology = transformed(columns=("page",), name="pages")
    assert topology.internal_topics == {"pages-changelog", "pages-repartition"}


@pytest.mark.parametrize(
    ("mode", "watermark"), [("EventTime", EventTime("at", 60_000)), ("processingtime", None), ("None", None)]
)
def test_only_event_time_goes_by_the_watermark(mode, watermark):
    (leg,) = transformed(mode, delay="1 minute").legs
    assert leg.emitting.watermark == watermark
    assert leg.keeps_watermark == (watermark is not None)


def test_another_text_is_another_pipeline():
    texts = {transformed().fingerprint, transformed("ProcessingTime").fingerprint, transformed(name="a").fingerprint}
    assert len(texts) == 3


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("EventTime",), r'timeMode="EventTime"\) needs to know when event time has passed: put withWatermark'),
        (("Event",), "takes timeMode='None' or 'ProcessingTime' or 'EventTime', not 'Event'"),
        (("Complete", "None"), "takes outputMode='Append' or 'Update', not 'Complete'"),
        ((7, "Append", "None"), "takes a StructType or text such as .* as outputStructType, not 7"),
        ((Processor, "n long", "Append", "None"), r"StatefulProcessor, not <class .*put \(\) behind its name"),
        ((len, "n long", "Append", "None"), "takes a pyspark.sql.streaming.StatefulProcessor, not <built-in"),
    ],
)
def test_wrong_arguments_are_refused(more, message):
    with pytest.raises(TopologyException, match=message):
        transformed(*more)


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"initialState": object()}, r"transformWithState\(initialState=...\) is not supported: write the rows"),
        ({"eventTimeColumnName": "at"}, r"\(eventTimeColumnName='at'\) is not supported: put withWatermark\(\)"),
        ({"name": "a b"}, "a b"),
    ],
)
def test_what_is_not_supported_is_refused(named, message):
    with pytest.raises(TopologyException, match=message):
        transformed(**named)


def test_a_table_s_rows_are_refused():
    builder = StreamsBuilder()
    table = builder.table("users", key=String("user"), value=Json("country string"))
    with pytest.raises(TopologyException, match=r"are a table's, whose rows change; put to_stream\(\) before groupBy"):
        table.groupBy("country").transformWithState(Processor(), "n long", "Append", "None")


def test_there_is_one_way_out_and_it_leads_somewhere():
    builder = StreamsBuilder()
    made = grouped(builder).transformWithState(Processor(), "n long", "Append", "None")
    with pytest.raises(TopologyException, match=r"nothing uses the result of groupBy.*transformWithState\(Processor"):
        builder.build()
    made.to("one")
    made.to("two")
    with pytest.raises(TopologyException, match=r"one way out of groupBy.*transformWithState.* Put repartition"):
        builder.build()


def test_event_time_behind_it_is_said_anew():
    builder = StreamsBuilder()
    made = grouped(builder, delay="1 minute").transformWithStateInPandas(Processor(), "user string", "Append", "None")
    with pytest.raises(TopologyException, match="needs to know when event time has passed"):
        made.groupBy("user").transformWithState(Processor(), "n long", "Append", "EventTime")


def test_ways_that_come_together_again_are_several_ways_out():
    builder = StreamsBuilder()
    made = grouped(builder).transformWithState(Processor(), "n long", "Append", "None")
    made.where("n > 1").union(made.where("n <= 1")).to("out")
    with pytest.raises(TopologyException, match=r"used here and once more, by union\(\), and there is one way out of"):
        builder.build()
