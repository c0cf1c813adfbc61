"""StreamsBuilder: where a pipeline is written down."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sparkrelay.errors import TopologyException
from sparkrelay.records.formats import Format, Json
from sparkrelay.topology.plan import CallSite, Leg, Sink, Source, Step, Subtopology, call_site
from sparkrelay.topology.streams import KStream, KTable, check_topic
from sparkrelay.topology.topology import Topology

if TYPE_CHECKING:
    from sparkrelay.topology.plan import Aggregation

__all__ = ["StreamsBuilder"]


class StreamsBuilder:
    """Collects a pipeline's streams; ``build()`` checks them and returns the topology.

    Usage::

        builder = StreamsBuilder()
        clicks = builder.stream("clicks", key=String("user"), value=Json("page string, ms long"))
        clicks.groupBy("user").agg(F.count("*").alias("clicks")).to("clicks-by-user")
        topology = builder.build()
    """

    def __init__(self) -> None:
        self._sources: list[Source] = []
        self._legs: list[Leg] = []
        self._names: dict[str, CallSite] = {}
        self._tables: dict[str, CallSite] = {}
        self._ended: dict[str, CallSite] = {}
        self._pending: list[KTable] = []

    def stream(
        self,
        topics: str | list[str] | tuple[str, ...],
        *,
        key: Format | None = None,
        value: Format | None = None,
        timestamp: str | None = None,
        name: str | None = None,
    ) -> KStream:
        """Read one or several topics.

        Args:
            topics: name or names; they must exist when the instance starts.
            key: format of the message key. Its column is known to decide the partition, so that grouping by it needs
                no repartition topic.
            value: format of the value. Without key and value formats the columns are those of Spark's Kafka source.
            timestamp: column that holds the event's time; None takes the record's timestamp.
            name: name of the source, part of the names of stores and internal topics; None: the first topic's.

        Raises:
            TopologyException: an argument is not what it should be; names the line.
        """
        where = call_site()
        given = (topics,) if isinstance(topics, str) else tuple(topics)
        if not given:
            raise TopologyException(f"{where}: stream() needs at least one topic")
        checked = tuple(check_topic(topic, where) for topic in given)
        if len(set(checked)) < len(checked):
            raise TopologyException(f"{where}: stream({list(checked)}) names a topic twice")
        for place, form in (("key", key), ("value", value)):
            if form is not None and not isinstance(form, Format):
                raise TopologyException(
                    f"{where}: stream({place}={form!r}): use a format such as String() or Json(...)"
                )
        if isinstance(key, Json):
            raise TopologyException(f"{where}: stream(key={key!r}): keys are one column: String, Integer, Long or Raw")
        source = Source(name or checked[0], checked, key, value, timestamp, internal=False, call_site=where)
        self._check_source(source)
        self._sources.append(source)
        return KStream(self, source, (), _key_columns(source))

    def table(self, topic: str, *, key: Any = None, value: Any = None, store: str | None = None) -> KTable:
        """Not there yet: read a compacted topic as a table."""
        del key, value, store
        raise TopologyException(f"{call_site()}: table({topic!r}) is not there yet; group the stream instead")

    def build(self) -> Topology:
        """Check everything and return the topology.

        Raises:
            TopologyException: there is no stream, or one that leads nowhere.
        """
        where = call_site()
        if not self._sources:
            raise TopologyException(f"{where}: the topology has no stream; begin with builder.stream(...)")
        unwritten = [table for table in self._pending if table._aggregation.store not in self._ended]
        legs = self._legs + [_leg(t._source, t._before, t._aggregation, (), None) for t in unwritten]
        used = {topic for leg in legs for topic in leg.source.topics}
        for source in self._sources:
            if not used.intersection(source.topics):
                raise TopologyException(
                    f"{source.call_site}: stream({', '.join(source.topics)}) leads nowhere; end it with to() or agg()"
                )
        return Topology(_subtopologies(legs))

    # -- for KStream and KTable -------------------------------------------------------------------------------------

    def _add_leg(
        self,
        source: Source,
        before: tuple[Step, ...],
        aggregation: Aggregation | None,
        after: tuple[Step, ...],
        sink: Sink,
    ) -> None:
        if not sink.internal and sink.topic in source.topics:
            raise TopologyException(f"{sink.call_site}: to({sink.topic!r}) writes the topic it reads: an endless loop")
        self._legs.append(_leg(source, before, aggregation, after, sink))

    def _note_table(self, table: KTable, where: CallSite) -> None:
        self._tables[table._aggregation.store] = where
        self._pending.append(table)

    def _end_table(self, table: KTable, sink: Sink) -> None:
        store = table._aggregation.store
        if store in self._ended:
            raise TopologyException(
                f"{sink.call_site}: this table is written already, at {self._ended[store]}; one to() a table for now: "
                "read the first topic back with builder.stream() for more"
            )
        self._add_leg(table._source, table._before, table._aggregation, table._after, sink)
        self._ended[store] = sink.call_site

    def _name(self, wanted: str | None, derived: str, where: CallSite, *, kind: str) -> str:
        """Return a name for a store or repartition topic: the user's, else a derived one that is free."""
        if wanted is not None:
            check_topic(wanted, where)
            taken = self._names.get(f"{kind} {wanted}")
            if taken is not None:
                raise TopologyException(f"{where}: the {kind} name {wanted!r} is taken at {taken}")
            self._names[f"{kind} {wanted}"] = where
            return wanted
        number = 1
        while f"{kind} {derived if number == 1 else f'{derived}-{number}'}" in self._names:
            number += 1
        name = derived if number == 1 else f"{derived}-{number}"
        self._names[f"{kind} {name}"] = where
        return name

    def _check_source(self, source: Source) -> None:
        for other in self._sources:
            common = set(other.topics) & set(source.topics)
            if common and (other.key, other.value, other.timestamp) != (source.key, source.value, source.timestamp):
                raise TopologyException(
                    f"{source.call_site}: topic {min(common)!r} is read with another format at {other.call_site}"
                )


def _key_columns(source: Source) -> frozenset[str] | None:
    if source.key is not None:
        return frozenset({getattr(source.key, "column", None) or "key"})
    if source.value is None:
        return frozenset({"key"})
    return frozenset({"kafka.key"})


def _leg(
    source: Source,
    before: tuple[Step, ...],
    aggregation: Aggregation | None,
    after: tuple[Step, ...],
    sink: Sink | None,
) -> Leg:
    return Leg("", -1, source, before, aggregation, after, sink)


def _subtopologies(legs: list[Leg]) -> tuple[Subtopology, ...]:
    """Put legs that share a source topic together, numbered in the order of their first appearance."""
    groups: list[tuple[set[str], list[Leg]]] = []
    for leg in sorted(legs, key=_depth(legs)):
        topics = set(leg.source.topics)
        joined = [leg]
        rest = []
        position = None
        for index, (known, members) in enumerate(groups):
            if known & topics:
                position = index if position is None else position
                topics |= known
                joined = members + joined if position == index else joined[:-1] + members + joined[-1:]
            else:
                rest.append((known, members))
        if position is None:
            groups.append((topics, joined))
        else:
            rest.insert(position, (topics, joined))
            groups = rest
    ids: set[str] = set()
    return tuple(
        Subtopology(
            number,
            tuple(replace(leg, id=_leg_id(leg, ids), subtopology=number) for leg in members),
        )
        for number, (_, members) in enumerate(groups)
    )


def _leg_id(leg: Leg, taken: set[str]) -> str:
    """Return a name that does not change when legs are added elsewhere: journals are kept under it."""
    if leg.aggregation is not None:
        base = leg.aggregation.store
    else:
        assert leg.sink is not None, "a leg without a store has a sink"
        base = f"{leg.source.name}>{leg.sink.topic}"
    number = 1
    while (id_ := base if number == 1 else f"{base}-{number}") in taken:
        number += 1
    taken.add(id_)
    return id_


def _depth(legs: list[Leg]) -> Any:
    """Return a sort key: legs behind more repartition topics come later, so that each follows its writer."""
    writers = {leg.sink.topic: leg for leg in legs if leg.sink is not None and leg.sink.internal}

    def depth(leg: Leg) -> int:
        steps = 0
        while leg.source.internal:
            leg = writers[leg.source.topics[0]]
            steps += 1
        return steps

    return depth
