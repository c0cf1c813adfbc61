"""Calls whose arguments do not fit name the public call, the value and the signature, not a class of ours."""

import contextlib
import inspect
from types import SimpleNamespace

import pytest

from sparkrelay.errors import TopologyException
from sparkrelay.records.formats import Json, String
from sparkrelay.topology import GlobalKTable, GroupedStream, KStream, KTable, StreamsBuilder, Topology

#: What callers give by mistake.
WRONG = [None, 3, True, 1.5, "", " ", "a b", "none", [], ["a", 3], {}, {"a": 3}, (), b"x", object(), object, len, [[]]]

#: Arguments that are right, for the ones beside a wrong one.
RIGHT = {
    "topic": "t",
    "topics": "t",
    "key": String("k"),
    "value": Json("a int"),
    "func": len,
    "eventTime": "t",
    "delayThreshold": "1 minute",
    "f": len,
    "on": "k",
    "outputStructType": "a int",
    "outputMode": "append",
    "timeMode": "None",
    "query": "SELECT k FROM i",
    "name": "v",
}


@pytest.fixture(scope="module")
def made(spark):
    """One object of each class."""
    builder = StreamsBuilder(spark)
    stream = builder.stream("i", key=String("k"), value=Json("a int, t timestamp")).withWatermark("t", "1 minute")
    table = builder.table("t", key=String("k"), value=Json("x int"))
    return SimpleNamespace(
        builder=builder, stream=stream, table=table, counted=stream.groupBy("k").count(), grouped=stream.groupBy("k")
    )


CLASSES = {"builder": StreamsBuilder, "stream": KStream, "table": KTable, "counted": KTable, "grouped": GroupedStream}


def public_methods():
    """Yield the methods that are ours: what is PySpark's as it is checks its arguments as it does there."""
    for name, cls in CLASSES.items():
        for method, function in inspect.getmembers(cls, inspect.isfunction):
            if not method.startswith("_") and function.__module__.startswith("sparkrelay."):
                yield name, method, [*inspect.signature(function).parameters.values()][1:]


@pytest.mark.parametrize("cls", [StreamsBuilder, KStream, KTable, GroupedStream, Topology])
def test_all_public_methods_check_their_arguments(cls):
    members = inspect.getmembers(cls, inspect.isfunction)
    functions = [(name, one) for name, one in members if name[0] != "_" and one.__module__.startswith("sparkrelay.")]
    assert functions
    assert [name for name, function in functions if not hasattr(function, "__wrapped__")] == []


def test_a_global_table_has_no_public_methods():
    assert [name for name, _ in inspect.getmembers(GlobalKTable, inspect.isfunction) if name[0] != "_"] == []


@pytest.mark.parametrize(("owner", "method", "parameters"), [*public_methods()])
def test_wrong_values_raise_topology_exception_or_nothing(made, owner, method, parameters):
    call = getattr(getattr(made, owner), method)
    beside = {**RIGHT, "other": made.stream if method.startswith("union") else made.table}
    for parameter in parameters:
        for value in WRONG:
            needed = {
                one.name: beside.get(one.name)
                for one in parameters
                if one.name == "on" or (one.default is one.empty and one.kind is not one.VAR_POSITIONAL)
                if one.kind is not one.VAR_KEYWORD
            }
            by_place = parameter.kind is parameter.VAR_POSITIONAL
            args, kwargs = ((value,), {}) if by_place else ((), {parameter.name: value})
            if parameter.kind is parameter.VAR_KEYWORD or (args and needed):
                continue
            with contextlib.suppress(TopologyException):
                call(*args, **{**needed, **kwargs})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.to(), "KStream.to() needs its argument 'topic'; the call is to(topic, key=, value=, headers="),
        (lambda s: s.to("t", keys=3), "KStream.to() has no argument keys=3: did you mean key=?; the call is to(topic"),
        (lambda s: s.to("t", String("k")), "has one argument too many, String(column='k'), which needs its name; the"),
        (lambda s: s.where(), "KStream.where() needs its argument 'condition'; the call is where(condition, name=)"),
        (lambda s: s.where("a", condition="b"), "has its argument 'condition' twice: by place and as condition='b'"),
        (lambda s: s.dropna(x=1), "KStream.dropna() has no argument x=1; the call is dropna(how="),
        (lambda s: s.fillna(), "KStream.fillna() needs its argument 'value'"),
        (lambda s: s.explain(x=1), "KStream.explain() has no argument x=1"),
        (lambda s: s.createOrReplaceTempView(), "KStream.createOrReplaceTempView() needs its argument 'name'"),
        (
            lambda s: s.groupBy("carrier").agg(store="x"),
            "GroupedStream.agg() has no argument store='x'; the call is ",
        ),
        (
            lambda s: s.groupBy("carrier").count("x"),
            "GroupedStream.count() has one argument too many, 'x', which needs its n",
        ),
        (
            lambda s: s.groupBy("carrier").count().to_stream(1),
            "KTable.to_stream() has one argument too many, 1; the call is",
        ),
        (lambda s: s.groupBy("carrier").count().where(), "KTable.where() needs its argument 'condition'"),
        (lambda s: s.select(x=1), "KStream.select() has no argument x=1; the call is select(*cols)"),
        (lambda s: s.transform(len, func=len), "KStream.transform() has its argument 'func' twice"),
        (
            lambda s: StreamsBuilder(None, "x"),
            "StreamsBuilder() has one argument too many, 'x', which needs its name; the call is Str",
        ),
        (
            lambda s: StreamsBuilder().table("t"),
            "StreamsBuilder.table() needs its argument 'key'; the call is table(to",
        ),
        (
            lambda s: StreamsBuilder().stream("t", Key=3),
            "StreamsBuilder.stream() has no argument Key=3: did you mean k",
        ),
        (lambda s: StreamsBuilder().build(1), "StreamsBuilder.build() has one argument too many, 1; the call is b"),
    ],
)
def test_arguments_that_do_not_fit(flights, call, message):
    with pytest.raises(TopologyException) as refused:
        call(flights)
    assert str(refused.value).startswith(f"test_public_calls.py:{call.__code__.co_firstlineno}: ")
    assert message in str(refused.value)


def test_errors_inside_of_a_call_are_not_taken_for_wrong_arguments(flights):
    def inside(stream):
        raise TypeError("inside")

    with pytest.raises((TypeError, TopologyException), match="inside") as raised:
        flights.transform(inside)
    assert "needs its argument" not in str(raised.value)


def test_an_error_shows_the_users_line_and_no_frames_below_it(made):
    with pytest.raises(TopologyException) as refused:
        made.stream.where("nothing > 1")
    error = refused.value
    assert error.__cause__ is None
    assert error.__suppress_context__
    assert len(refused.traceback) == 2
