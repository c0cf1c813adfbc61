"""A double of PySpark's Columns: the few JVM methods that topology looks at, without a JVM.

``tests/integration/topology`` holds it against the real thing.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from sparkrelay.records.formats import Json, String
from sparkrelay.topology import StreamsBuilder


class Sequence:
    """Scala's Seq, as py4j shows it."""

    def __init__(self, *items):
        self._items = items

    def size(self):
        return len(self._items)

    def apply(self, index):
        return self._items[index]


class Node:
    """A node of a column's expression; what it has are methods, as py4j shows them."""

    def __init__(self, kind, text, **members):
        self._kind = kind
        self.text = text
        for name, value in members.items():
            setattr(self, name, lambda value=value: value)

    def productPrefix(self):
        return self._kind


class Column:
    def __init__(self, node):
        self._jc = SimpleNamespace(node=lambda: node, toString=lambda: node.text)

    def alias(self, name):
        node = self._jc.node()
        return Column(Node("Alias", f"{node.text} AS {name}", name=Sequence(name), child=node))

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Column(Node("UnresolvedExtractValue", f"{self._jc.toString()}['{name}']"))

    def __eq__(self, other):
        return Column(Node("UnresolvedFunction", "=(..)"))

    def __bool__(self):
        raise ValueError("Cannot convert column into bool")

    __hash__ = None


def col(name):
    if name == "*":
        return Column(Node("UnresolvedStar", "*"))
    parts = [name[1:-1]] if name.startswith("`") else name.split(".")
    return Column(Node("UnresolvedAttribute", name, nameParts=Sequence(*parts)))


def function(name):
    def call(*arguments):
        columns = [argument if isinstance(argument, Column) else col(argument) for argument in arguments]
        nodes = [column._jc.node() for column in columns]
        text = f"{name}({', '.join(node.text for node in nodes)})"
        members = {"functionName": name, "arguments": Sequence(*nodes), "isDistinct": False}
        return Column(Node("UnresolvedFunction", text, **members))

    return call


def lit(value):
    return Column(Node("Literal", repr(value), value=value))


def expr(text):
    return Column(Node("SqlExpression", text, expression=text))


def window(column, duration):
    return function("window")(column, lit(duration))


def session_window(column, gap):
    return function("session_window")(column, lit(gap))


@pytest.fixture(scope="session")
def F():
    functions = {name: function(name) for name in ("sum", "count", "avg", "min", "max", "upper", "isNull", "+")}
    return SimpleNamespace(
        col=col, lit=lit, expr=expr, window=window, session_window=session_window, function=function, **functions
    )


@pytest.fixture
def builder():
    return StreamsBuilder()


@pytest.fixture
def flights(builder):
    return builder.stream("flights", key=String("carrier"), value=Json("origin string, delay double, time timestamp"))
