"""Source topics with watermarks of their own, and intervals in Spark's syntax."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkrelay.catalyst.intervals import interval_us
from sparkrelay.errors import TopologyException
from sparkrelay.operators.emitting.run import TimedSource
from sparkrelay.state.window_keys import MOST_SOURCES
from sparkrelay.topology.record import spark_errors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkrelay.operators.emitting.plan import Surroundings
    from sparkrelay.operators.emitting.step import EmittingStep
    from sparkrelay.runtime.topics.topic_names import TopicNames
    from sparkrelay.topology import Leg


def timed_sources(
    legs: Sequence[Leg], leg: Leg, names: TopicNames, where: str
) -> tuple[tuple[TimedSource, ...], tuple[str, ...]]:
    """Return the source topics of a step that emits a stream, each with a watermark, and the names of a leg's own.

    A topic that two legs read by the same time, as in a join of a stream with itself, is one source. With times that
    are computed differently it is two.

    Args:
        legs: the legs that share the step's store.
        leg: one of them.
        names: Kafka's names of topics.
        where: the user's line and step, for messages.

    Raises:
        TopologyException: there are too many, or a delay is invalid.
    """
    sources = {one.id: _timed_sources(one, names) for one in legs}
    together = tuple(dict.fromkeys(source for some in sources.values() for source in some))
    if len(together) > MOST_SOURCES:
        # A store's header with more sources could be written, but not read.
        raise TopologyException(f"{where}: its streams read {len(together)} topics; {MOST_SOURCES} are the most")
    return together, tuple(source.name for source in sources[leg.id])


def timed_fields(leg: Leg, step: EmittingStep, around: Surroundings, *, legs: Sequence[Leg] = ()) -> dict[str, Any]:
    """Return the fields of a step's ``EmittingRunner`` for its store and its watermark.

    Args:
        leg: the leg.
        step: its stateful step.
        around: the pipeline.
        legs: the legs that share the store, if there are several.

    Raises:
        TopologyException: too many topics are read, or a delay is invalid.
    """
    where = f"{step.call_site}: {step.text}"
    sources, own_sources = timed_sources(legs or [leg], leg, around.names, where)
    return {
        "store": step.store,
        "changelog": around.names.changelog(step.store) if step.logged else None,
        "delay_ms": max((source.delay_ms for source in sources if source.name in own_sources), default=0),
        "ahead_ms": around.config.event_time_after_max_ms,
        "sources": sources,
        "own_sources": own_sources,
    }


def _timed_sources(leg: Leg, names: TopicNames) -> list[TimedSource]:
    step = leg.emitting
    if step is None or step.watermark is None:
        return []
    delay_ms = step.watermark.delay_ms
    if step.waits is not None:
        delay_ms += interval_ms(step.waits, f"{step.call_site}: {step.text}, read as a delay")
    name = f"{step.watermark.column} {step.watermark.delay_ms} ms"
    return [TimedSource(f"{topic} {name}", topic, delay_ms) for topic in names.sources(leg)]


def interval_ms(interval: str, where: str) -> int:
    """Return an interval in ms, parsed like the delay of a watermark: a month has 31 days.

    Raises:
        TopologyException: it is invalid or negative.
    """
    with spark_errors(where):
        return interval_us(interval) // 1000
