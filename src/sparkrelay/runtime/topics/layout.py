"""Tasks and internal topics of a topology, once the source topics' partition counts are known. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sparkrelay.errors import StreamsException, UnknownTopicException
from sparkrelay.protocol import LONG_MAX
from sparkrelay.runtime.contract.commit_notes import TASKS, note_parts
from sparkrelay.runtime.topics.grown_sources import grown_source, sources_of
from sparkrelay.runtime.topics.partition_counts import absent, count_partitions, missing
from sparkrelay.runtime.topics.writers import writers_of
from sparkrelay.topology import ForeachBatch
from sparkrelay.types import TaskId, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from sparkrelay.runtime.topics.topic_names import TopicNames
    from sparkrelay.runtime.topics.writers import Writers
    from sparkrelay.topology import Leg, Subtopology, Topology

__all__ = ["InternalTopic", "TaskLayout", "TaskShape", "lay_out"]


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """A topic that belongs to the application: a repartition topic or a changelog.

    Attributes:
        compacted: True for a changelog.
        cut: True where records that nobody needs any more are deleted: of repartition topics, and of changelogs whose
            windows end.
    """

    name: str
    partitions: int
    compacted: bool
    cut: bool

    @property
    def configs(self) -> dict[str, str]:
        """Topic settings: changelogs are compacted; records never expire by time, some are deleted.

        Timestamps are the rows' own, also where the broker's default is the time of writing, and however far from now:
        a row with a time of the year 2999 that got here must not be refused behind the user's back.
        """
        compacted = {"min.cleanable.dirty.ratio": "0.5"} if self.compacted else {}
        # Brokers delete records where the policy says so, and whole segments.
        cut = {"retention.ms": "-1", "retention.bytes": "-1", "segment.bytes": "52428800"} if self.cut else {}
        return {
            "cleanup.policy": ",".join(["compact"] * self.compacted + ["delete"] * self.cut),
            **compacted,
            **cut,
            "message.timestamp.type": "CreateTime",
            "message.timestamp.before.max.ms": str(LONG_MAX),
            "message.timestamp.after.max.ms": str(LONG_MAX),
        }


@dataclass(frozen=True, slots=True)
class TaskShape:
    """What one task reads and keeps.

    Attributes:
        inputs: input partitions, sorted.
        changelogs: store -> changelog partition. That is one of the inputs, for a table that reuses its topic.
        stores: its stores, with a changelog or without.
        state_topics: input topics of legs with a store: of these the state itself says how far it has seen.
        width: how many tasks its subtopology has.
        table_topics: input topics of tables that other legs look into.
        cut: stores whose changelogs are cut at what is over.
        timed_topics: input topics of legs with a watermark, but for those that get rows only when windows are over.
        merged: store -> the topics that its grouping reads, of groupings with a watermark that read several.
        joins: the stores of joins of streams.
        timed_sinks: repartition topics that it writes, whose rows come with the event times that are gone by behind.
        foreach_batch: True if rows of it go to ``foreachBatch``.
        clocked: store -> the topics that its step reads, of steps that go by processing time.
    """

    inputs: tuple[TopicPartition, ...]
    changelogs: Mapping[str, TopicPartition]
    state_topics: frozenset[str] = frozenset()
    stores: tuple[str, ...] = ()
    width: int = 0
    table_topics: frozenset[str] = frozenset()
    cut: frozenset[str] = frozenset()
    timed_topics: frozenset[str] = frozenset()
    merged: Mapping[str, frozenset[str]] = field(default_factory=dict)
    joins: frozenset[str] = frozenset()
    timed_sinks: frozenset[str] = frozenset()
    foreach_batch: bool = False
    clocked: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def source_changelogs(self) -> frozenset[TopicPartition]:
        """The inputs that are changelogs, too, of tables that reuse their topic."""
        return frozenset(self.changelogs.values()).intersection(self.inputs)


@dataclass(frozen=True, slots=True)
class TaskLayout:
    """Every task of the application, every topic it owns, and how wide each topic is that it writes.

    Attributes:
        sink_partitions: partition count of each topic that some ``to()`` or repartition writes.
        source_partitions: partition count of each of the user's topics that is read.
        writers: repartition topic -> the tasks that write it, where its rows come with the event times that are gone by
            behind it.
    """

    tasks: Mapping[TaskId, TaskShape]
    internal_topics: Mapping[str, InternalTopic]
    sink_partitions: Mapping[str, int]
    source_partitions: Mapping[str, int]
    writers: Mapping[str, Writers] = field(default_factory=dict)


def lay_out(
    topology: Topology, names: TopicNames, partitions: Mapping[str, int], *, dead_letters: str | None = None
) -> TaskLayout:
    """Work out tasks and internal topics.

    Args:
        topology: what to run.
        names: Kafka's names of its topics.
        partitions: partition count of every topic that exists, of those that the topology reads, writes or owns.
        dead_letters: the dead letter topic, if there is one.

    Raises:
        MissingSourceTopicException: a source topic does not exist.
        UnknownTopicException: a sink topic does not exist.
        StreamsException: an internal topic exists with another partition count: the source topic's has changed. Or the
            source topics of a leg with a store differ in theirs, or those of a stream and of a table it looks into.
    """
    tasks: dict[TaskId, TaskShape] = {}
    counts = count_partitions(topology, names, partitions)
    internal: dict[str, InternalTopic] = {}
    for leg in topology.legs:
        if leg.sink is not None and leg.sink.internal:
            name = names(leg.sink.topic, internal=True)
            internal[name] = InternalTopic(name, counts[name], compacted=False, cut=True)
    behind_final = _behind_final_rows(topology, names)
    for subtopology in topology.subtopologies:
        sources = {
            topic: counts[names(topic, leg.source.internal)] for leg in subtopology.legs for topic in leg.source.topics
        }
        for leg in subtopology.legs:
            _check_together(leg, sources)
        width = max(sources.values())
        timed = [leg for leg in subtopology.legs if leg.keeps_watermark]
        cut = frozenset(leg.store for leg in timed if leg.store is not None)
        timed_topics = frozenset(names(topic, leg.source.internal) for leg in timed for topic in leg.source.topics)
        merging = {
            store: frozenset(
                names(t, leg.source.internal) for leg in timed if leg.store == store for t in leg.source.topics
            )
            for store in cut
        }
        joins = frozenset(leg.join.store for leg in subtopology.legs if leg.join is not None)
        merged = {store: topics for store, topics in merging.items() if len(topics) > 1 or store in joins}
        for store in subtopology.logged_stores:
            name = names.changelog(store)
            internal[name] = InternalTopic(name, width, compacted=True, cut=store in cut)
        reused = subtopology.reused_topics
        state_topics = frozenset(
            names(topic, leg.source.internal)
            for leg in subtopology.legs
            if leg.store is not None
            for topic in leg.source.topics
        )
        looked_into = {lookup.store for leg in subtopology.legs for lookup in leg.lookups}
        table_topics = frozenset(
            names(topic, leg.source.internal)
            for leg in subtopology.legs
            if leg.store in looked_into
            for topic in leg.source.topics
        )
        clocked = {
            leg.emitting.store: frozenset(names(topic, leg.source.internal) for topic in leg.source.topics)
            for leg in subtopology.legs
            if leg.emitting is not None and leg.emitting.goes_by_clock
        }
        by_name = {names(topic, _is_internal(subtopology, topic)): count for topic, count in sources.items()}
        for number in range(width):
            tasks[TaskId(subtopology.id, number)] = TaskShape(
                inputs=tuple(sorted(TopicPartition(t, number) for t, count in by_name.items() if number < count)),
                changelogs={
                    **{store: TopicPartition(names.changelog(store), number) for store in subtopology.logged_stores},
                    **{store: TopicPartition(t, number) for store, t in reused.items() if number < sources[t]},
                },
                state_topics=state_topics,
                stores=subtopology.stores,
                width=width,
                table_topics=table_topics,
                cut=cut,
                timed_topics=timed_topics - behind_final,
                merged=merged,
                joins=joins,
                # Where it has none of their partitions, nobody would run the step.
                clocked={
                    store: topics
                    for store, topics in clocked.items()
                    if any(number < by_name[topic] for topic in topics)
                },
                foreach_batch=any(isinstance(leg.action, ForeachBatch) for leg in subtopology.legs),
            )
    for topic in internal.values():
        found = partitions.get(topic.name)
        if found is not None and found != topic.partitions:
            raise _other_width(topology, names, counts, topic, found)
    read = {topic: partitions[topic] for topic in sorted(topology.source_topics)}
    writers = writers_of(topology, names, {id_: shape.inputs for id_, shape in tasks.items()})
    for id_, shape in tasks.items():
        written = topology.subtopologies[id_.subtopology].repartition_sinks
        timed_sinks = frozenset(names(topic, internal=True) for topic in written).intersection(writers)
        tasks[id_] = replace(shape, timed_sinks=timed_sinks)
    sinks = _sinks(topology, names, partitions, internal)
    if dead_letters is not None:
        sinks[dead_letters] = _dead_letter_partitions(dead_letters, {*sinks, *read, *internal}, partitions)
    return TaskLayout(tasks, internal, sinks, read, writers)


def _other_width(
    topology: Topology, names: TopicNames, counts: Mapping[str, int], topic: InternalTopic, found: int
) -> StreamsException:
    """Return the error of an internal topic that would need another number of partitions than it has."""
    grown = {
        source: found
        for source in sources_of(topology, names, topic.name)
        if found < topic.partitions == counts[source]
    }
    if grown:
        return grown_source(names.application_id, grown, now=topic.partitions)
    return StreamsException(
        f"internal topic {topic.name!r} has {found} partitions, but the pipeline now asks for {topic.partitions}: the "
        "partitions= of a repartition(), or the partition count of a source topic, was changed. Keys would move to "
        "other tasks than their state. Change it back, or start the application over: sparkrelay reset "
        f"--application-id {names.application_id} ..."
    )


def require_same_width(application_id: str, before: TaskLayout, now: TaskLayout) -> None:
    """Refuse that stores are spread over another number of tasks: keys would move, and state not.

    :func:`lay_out` refuses it of stores with a changelog of their own, whose partitions are as many.

    Raises:
        StreamsException: a source topic got partitions.
    """
    for id_, shape in sorted(before.tasks.items()):
        new = now.tasks.get(id_)
        if shape.stores and new is not None and new.width != shape.width:
            # A repartition topic that has grown was refused by its own partitions.
            sources = shape.state_topics.intersection(now.source_partitions) or now.source_partitions
            raise grown_source(application_id, dict.fromkeys(sources, shape.width), now=new.width)


def require_noted_width(application_id: str, layout: TaskLayout, noted: Mapping[TopicPartition, str]) -> None:
    """Refuse that tables whose topics are their changelogs are spread over more tasks than when they last ran.

    Args:
        application_id: whose.
        layout: what is to run.
        noted: what is noted with the group's offsets of these topics.

    Raises:
        StreamsException: a topic got partitions.
    """
    for shape in layout.tasks.values():
        for partition in shape.source_changelogs:
            tasks = note_parts(noted.get(partition, "")).get(TASKS)
            if type(tasks) is int and tasks != shape.width:
                raise grown_source(application_id, {partition.topic: tasks}, now=shape.width)


def _behind_final_rows(topology: Topology, names: TopicNames) -> frozenset[str]:
    """Return the topics that get rows of ours only when windows are over: that none come there is no silence."""
    found: set[str] = set()
    for leg in topology.upstream_first:
        final = leg.aggregation is not None and leg.aggregation.final
        read = {names(topic, leg.source.internal) for topic in leg.source.topics}
        if leg.sink is not None and (final or not found.isdisjoint(read)):
            found.add(names(leg.sink.topic, leg.sink.internal))
    return frozenset(found)


def _check_together(leg: Leg, counts: Mapping[str, int]) -> None:
    """Refuse a store of topics in which one key has different partition numbers: two tasks would share its rows."""
    topics, step = leg.source.topics, leg.stateful_step
    if step is None or len({counts[topic] for topic in topics}) == 1:
        return
    found = ", ".join(f"{topic!r} has {counts[topic]}" for topic in topics)
    raise StreamsException(
        f"{step.call_site}: {step.text} is of the stream of {leg.source.call_site}, whose topics differ in their "
        f"partition counts: {found}. The rows of a key would be in two tasks. Put repartition(...) with the columns of "
        "its key before it, or give the topics equally many partitions"
    )


def _sinks(
    topology: Topology, names: TopicNames, partitions: Mapping[str, int], planned: Mapping[str, InternalTopic]
) -> dict[str, int]:
    found = {}
    for leg in topology.legs:
        if leg.sink is None:
            continue
        name = names(leg.sink.topic, leg.sink.internal)
        count = planned[name].partitions if leg.sink.internal else partitions.get(name)
        if not count:
            how = "to()" if leg.late_for is None else "late_to="
            what = f"{leg.sink.call_site}: topic {leg.sink.topic!r} of {how}"
            raise UnknownTopicException(missing(what, leg.sink.topic, absent(topology, partitions)))
        found[name] = count
    return found


def _dead_letter_partitions(topic: str, others: Collection[str], partitions: Mapping[str, int]) -> int:
    what = f"errors.dead.letter.queue.topic.name: topic {topic!r}"
    if topic in others:
        raise StreamsException(
            f"{what} is one that the pipeline reads or writes itself: dead letters would be taken for its rows. Give "
            "them a topic of their own"
        )
    if not (count := partitions.get(topic)):
        raise UnknownTopicException(missing(what, topic))
    return count


def _is_internal(subtopology: Subtopology, topic: str) -> bool:
    return any(topic in leg.source.topics and leg.source.internal for leg in subtopology.legs)
