"""Every method of Kafka Streams' language, and of DataFrames, is there or is refused with what to write instead."""

# ruff: noqa: N803 - everybody writes F

import inspect

import pytest

from sparkrelay.errors import TopologyException
from sparkrelay.records.formats import Json, String
from sparkrelay.topology import StreamsBuilder
from sparkrelay.topology.refusals import OF_KIND, REMEDIES

#: The methods of Kafka Streams 4.3, without those that have the same name here.
KSTREAM = (
    "filterNot selectKey map mapValues flatMap flatMapValues print peek split merge toTable groupByKey leftJoin "
    "outerJoin process processValues"
)
KTABLE = "filterNot mapValues toStream suppress transformValues leftJoin outerJoin queryableStoreName"
KGROUPED_STREAM = "reduce aggregate windowedBy cogroup"
STREAMS_BUILDER = "globalTable addStateStore addGlobalStore"


def made(kind):
    builder = StreamsBuilder()
    stream = builder.stream("i", key=String("k"), value=Json("a int"))
    grouped = stream.groupBy("k")
    return {"KStream": stream, "KTable": grouped.count(), "GroupedStream": grouped, "StreamsBuilder": builder}[kind]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(("KStream", name) for name in KSTREAM.split()),
        *(("KTable", name) for name in KTABLE.split()),
        *(("GroupedStream", name) for name in KGROUPED_STREAM.split()),
        *(("StreamsBuilder", name) for name in STREAMS_BUILDER.split()),
        *((kind, "cogroup") for kind in ("KStream", "KTable")),
        *(("KStream", name) for name in ("suppress", "windowedBy", "to_stream", "outputMode", "branch")),
        *(("KTable", name) for name in ("peek", "to_table", "flatMap")),
        *(("GroupedStream", name) for name in ("applyInPandas", "pivot", "to", "where", "stddev")),
        *(("StreamsBuilder", name) for name in ("readStream", "dataframe", "describe")),
    ],
)
def test_other_libraries_methods_are_refused_with_what_to_write_instead(kind, name):
    line = f"test_refusals.py:{inspect.currentframe().f_lineno + 2}"
    with pytest.raises(TopologyException) as refused:
        getattr(made(kind), name)
    message = str(refused.value)
    assert message.startswith(f"{line}: {kind} has no {name}(): ")
    # Neither a list of everything nor a guess.
    assert "steps are" not in message
    assert "a column is written" not in message
    assert "did you mean" not in message


@pytest.mark.parametrize("kind", ["KStream", "KTable", "GroupedStream", "StreamsBuilder"])
def test_every_method_of_the_page_is_refused_with_its_text(kind):
    texts = {**(REMEDIES if kind.startswith("K") else {}), **OF_KIND[kind]}
    one = made(kind)
    for name, text in texts.items():
        with pytest.raises(TopologyException) as refused:
            # PySpark's own methods are refused when they are called.
            getattr(one, name)(*["k"] * (2 if name == "withWatermark" else 1))
        assert text in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "name", "instead"),
    [
        ("KStream", "peek", "use show() to print rows, or foreach(fn) to call a function for each row"),
        ("KStream", "split", 'use several where() on one stream: s.where("a > 0"), s.where("a <= 0")'),
        ("KStream", "flatMapValues", 'use select("key", F.explode("values").alias("value"))'),
        ("KTable", "suppress", 'use outputMode("append") after agg(...), with withWatermark() before groupBy()'),
        ("KTable", "foreachBatch", "it is for streams: to_stream() makes one of a table's changes"),
        ("GroupedStream", "cogroup", 'use unionByName(other) before groupBy("a"), or aggregate both and join the two'),
        ("GroupedStream", "windowedBy", 'use groupBy("key", F.window("time", "10 minutes"))'),
        ("GroupedStream", "counts", "did you mean count?"),
        ("StreamsBuilder", "globalTable", "use global_table(topic, key=, value=)"),
        ("StreamsBuilder", "addStateStore", "transformWithState(...) has the state of each key"),
        ("StreamsBuilder", "streams", "did you mean stream?"),
        ("StreamsBuilder", "zzz", "steps are add, build, global_table, script, sql, stream, table"),
    ],
)
def test_what_to_write_instead(kind, name, instead):
    with pytest.raises(TopologyException) as refused:
        getattr(made(kind), name)
    assert instead in str(refused.value)


@pytest.mark.parametrize(
    ("call", "instead"),
    [
        (lambda table: table.foreach(print), "it is for streams: to_stream() makes one of a table's changes"),
        (lambda table: table.repartition("k"), "it is for streams; groupBy(...) and join(...) move a table's rows"),
        (lambda table: table.withWatermark("t", "1 minute"), "use it on the stream, before groupBy()"),
        (lambda table: table.dropDuplicates(["k"]), "put to_stream() before it"),
        (
            lambda table: table.groupBy("k").transformWithState(None, "a int", "Append", "None"),
            "put to_stream() before",
        ),
    ],
)
def test_what_is_for_streams_is_refused_of_a_table(builder, F, call, instead):
    stream = builder.stream("i", key=String("k"), value=Json("t timestamp"))
    table = stream.groupBy("k").agg(F.max("t").alias("t"))
    with pytest.raises(TopologyException) as refused:
        call(table)
    message = str(refused.value)
    assert message.startswith(f"test_refusals.py:{call.__code__.co_firstlineno}: ")
    assert instead in message


def test_names_with_an_underscore_are_python_s_own_probes():
    for kind in ("KStream", "KTable", "GroupedStream", "StreamsBuilder"):
        assert not hasattr(made(kind), "_repr_svg_")
