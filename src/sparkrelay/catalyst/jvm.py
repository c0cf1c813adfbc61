"""Calls to the JVM: classes and objects by name, sequences, tree patterns."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_CATALYST = "org.apache.spark.sql.catalyst."


def java(name: str) -> Any:
    """Return a class of the JVM's, by its whole name."""
    return _java(jvm(), name)


def catalyst(name: str, *fields: Any) -> Any:
    """Return a new node or expression, given its class below Catalyst's package."""
    return java(_CATALYST + name)(*fields)


def scala_object(name: str) -> Any:
    """Return an object of Scala's, by its whole name."""
    return _scala_object(jvm(), f"{name}$")


def catalyst_object(name: str) -> Any:
    """Return an object of Scala's, by its name below Catalyst's package."""
    return scala_object(_CATALYST + name)


def items(sequence: Any) -> list[Any]:
    """Return what is in a sequence of the JVM's."""
    return [sequence.apply(index) for index in range(sequence.size())]


def seq(values: Iterable[Any]) -> Any:
    """Return a sequence of the JVM's."""
    return java("org.apache.spark.api.python.PythonUtils").toSeq([*values])


def kind(node: Any) -> str:
    """Return the name of the class of a plan's node, or of an expression's."""
    return str(node.productPrefix())


def nodes(plan: Any) -> Iterator[Any]:
    """Yield a plan or an expression and all that is below it."""
    yield plan
    for child in items(plan.children()):
        yield from nodes(child)


def nodes_above(plan: Any, known: Any) -> list[Any] | None:
    """Return the nodes of a plan above another one that is in it, from the top down; None if there is a fork before."""
    identity = java("java.lang.System").identityHashCode
    known, above = identity(known), []
    while identity(plan) != known:
        children = plan.children()
        if int(children.size()) != 1:
            return None
        above.append(plan)
        plan = children.head()
    return above


def nothing() -> Any:
    """Return Scala's ``None``."""
    return java("scala.Option").empty()


def pattern(name: str) -> Any:
    """Return one of Catalyst's tree patterns: every node knows which of them are below it."""
    return _pattern(jvm(), name)


def patterns(*names: str) -> Any:
    """Return several of them, for ``containsAnyPattern``."""
    return _patterns(jvm(), names)


# Each part of a name takes a call to the JVM, which has the same things all the time.


@functools.lru_cache(maxsize=64)
def _java(view: Any, name: str) -> Any:
    return getattr(view, name)


@functools.lru_cache(maxsize=64)
def _scala_object(view: Any, name: str) -> Any:
    return getattr(getattr(view, name), "MODULE$")


@functools.lru_cache(maxsize=64)
def _pattern(view: Any, name: str) -> Any:
    return getattr(_scala_object(view, f"{_CATALYST}trees.TreePattern$"), name)()


@functools.lru_cache(maxsize=16)
def _patterns(view: Any, names: tuple[str, ...]) -> Any:
    return view.org.apache.spark.api.python.PythonUtils.toSeq([_pattern(view, name) for name in names])


def jvm() -> Any:
    """Return py4j's view of the live session's JVM."""
    from pyspark import SparkContext  # noqa: PLC0415 - the live context's JVM, not an import-time one

    context = SparkContext._active_spark_context
    assert context is not None, "columns exist only while a SparkContext does"
    view: Any = context._jvm
    return view
