"""Checks of legs: what would be wrong after a restore, or never end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.errors import TopologyException
from sparkrelay.topology.structure import ForeachBatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sparkrelay.operators.emitting.step import EmittingStep
    from sparkrelay.topology.structure import Aggregation, Leg, Source


def check_legs(legs: Sequence[Leg]) -> None:
    """Check the legs of a topology together.

    Raises:
        TopologyException: rows go round in a circle, or a task would restore some of its stores; names the lines.
    """
    _check_circles(legs)
    _check_starts(legs)
    _check_changelogs(legs)
    _check_batches(legs)


def _check_circles(legs: Sequence[Leg]) -> None:
    """Refuse legs whose rows come back to them, and may never end, unless the user has said so."""
    following = {leg.id: [*_readers(leg, legs)] for leg in legs}
    done: set[str] = set()

    def visit(leg: Leg, way: list[Leg]) -> None:
        if leg in way:
            circle = [at.sink for at in way[way.index(leg) :] if at.sink is not None]
            route = " and ".join(f"{sink.topic!r} at {sink.call_site}" for sink in circle)
            raise TopologyException(
                f"{circle[-1].call_site}: rows would go round in a circle, written to {route} and read again at "
                f"{leg.source.call_site}; write to another topic, or say that they may come back: "
                "to(..., circular=True)"
            )
        if leg.id not in done:
            for other in following[leg.id]:
                visit(other, [*way, leg])
            done.add(leg.id)

    for leg in legs:
        visit(leg, [])


def _readers(leg: Leg, legs: Iterable[Leg]) -> Iterator[Leg]:
    """Yield the legs that read what a leg writes, unless its rows may go round."""
    sink = leg.sink
    if sink is None or sink.circular:
        return
    for other in legs:
        if any(sink.internal == one.internal and sink.topic in one.topics for one in other.sources):
            yield other


def _check_starts(legs: Iterable[Leg]) -> None:
    """Refuse a topic that two sources read from different places: the group has one offset of it."""
    first: dict[str, Source] = {}
    for source in (source for leg in legs if not leg.keeps_global_table for source in leg.sources):
        for topic in () if source.internal else source.topics:
            other = first.setdefault(topic, source)
            if other.starts.get(topic) != source.starts.get(topic):
                here, there = (one.starts.get(topic, "auto.offset.reset") for one in (source, other))
                raise TopologyException(
                    f"{source.call_site}: topic {topic!r} is read from {here} here and from {there} at "
                    f"{other.call_site}, and an application has one position in it; give both the same starting="
                )


def _check_changelogs(legs: Iterable[Leg]) -> None:
    """Refuse stores with and without changelog in one task: after a restore they would not have seen the same input."""
    first: dict[int, Aggregation | EmittingStep] = {}
    for leg in legs:
        if (one := leg.stateful_step) is None:
            continue
        other = first.setdefault(leg.subtopology, one)
        if other.logged != one.logged:
            unlogged, logged = (other, one) if one.logged else (one, other)
            raise TopologyException(
                f"{unlogged.call_site}: {unlogged.text} has no changelog, and {logged.text} at {logged.call_site} has "
                "one: they share source topics and so a task, whose stores have changelogs all or none. Give both "
                "logged=False or neither, or put a repartition(...) before one of them"
            )


def _check_batches(legs: Sequence[Leg]) -> None:
    """Refuse foreachBatch behind a store without changelog: a batch that runs again elsewhere would find it empty."""
    unlogged = {step.store: step for leg in legs if (step := leg.stateful_step) is not None and not step.logged}
    for leg in legs:
        if isinstance(leg.action, ForeachBatch) and (
            found := unlogged.keys() & {*leg.reads_stores, *(() if leg.store is None else (leg.store,))}
        ):
            step = unlogged[min(found)]
            raise TopologyException(
                f"{leg.action.call_site}: {leg.action.text} stands behind {step.text} of {step.call_site}, which has "
                "no changelog: a micro-batch that runs again on another instance would have other rows under the same "
                "number. Leave logged=False out"
            )
