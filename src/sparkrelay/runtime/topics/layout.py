"""Tasks and internal topics of a topology, given the partition counts of its topics. Pure."""

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
    from sparkrelay.topology import Leg, Topology
    from sparkrelay.topology.starts import TopicStart


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """A repartition topic, or a changelog (``compacted``).

    ``cut`` is True if unneeded records are deleted: of repartition topics, and of changelogs whose windows end.
    """

    name: str
    partitions: int
    compacted: bool
    cut: bool

    @property
    def configs(self) -> dict[str, str]:
        """Topic settings: changelogs are compacted, and no record expires by time.

        Timestamps are the rows' own, whatever the broker's default, and however far from now: a row of the year 2999
        must not be rejected here.
        """
        compacted = {"min.cleanable.dirty.ratio": "0.5"} if self.compacted else {}
        # DeleteRecords needs the policy, and frees whole segments.
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
    """Inputs and stores of one task.

    Attributes:
        inputs: input partitions, sorted.
        changelogs: store -> changelog partition, which is an input for a table that reuses its topic.
        stores: its stores, logged or not.
        state_topics: input topics of legs with a store, whose state records how far it has read.
        width: number of tasks of its subtopology.
        table_topics: input topics of tables that other legs join.
        cut: stores whose changelogs are cut at closed windows.
        timed_topics: input topics of legs with a watermark, except those that only get rows of closed windows.
        merged: store -> its input topics, of groupings with a watermark that read several.
        joins: stores of stream joins.
        timed_sinks: repartition topics that it writes whose rows carry event times for the watermark downstream.
        foreach_batch: True if it calls ``foreachBatch``.
        clocked: store -> its input topics, of steps by processing time.
        starts: source topic -> where it is read first, where its source says so.
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
    starts: Mapping[str, TopicStart] = field(default_factory=dict)

    @property
    def source_changelogs(self) -> frozenset[TopicPartition]:
        """The inputs that are also changelogs, of tables that reuse their topic."""
        return frozenset(self.changelogs.values()).intersection(self.inputs)


@dataclass(frozen=True, slots=True)
class TaskLayout:
    """Every task and internal topic of the application, and the partition counts of other topics.

    Attributes:
        sink_partitions: of the topics that are written, by ``to()`` or repartitions.
        source_partitions: of the user's topics that are read.
        writers: the tasks that write each repartition topic whose rows carry event times.
    """

    tasks: Mapping[TaskId, TaskShape]
    internal_topics: Mapping[str, InternalTopic]
    sink_partitions: Mapping[str, int]
    source_partitions: Mapping[str, int]
    writers: Mapping[str, Writers] = field(default_factory=dict)


def lay_out(
    topology: Topology, names: TopicNames, partitions: Mapping[str, int], *, dead_letters: str | None = None
) -> TaskLayout:
    """Return the layout, given the partition counts of existing topics.

    Raises:
        MissingSourceTopicException: a source topic does not exist.
        UnknownTopicException: a sink topic does not exist.
        StreamsException: a partition count has changed under existing state, or topics that must be co-partitioned
            have different counts.
    """
    tasks: dict[TaskId, TaskShape] = {}
    counts = count_partitions(topology, names, partitions)
    internal: dict[str, InternalTopic] = {}
    for leg in topology.legs:
        if leg.sink is not None and leg.sink.internal:
            name = names(leg.sink.topic, internal=True)
            internal[name] = InternalTopic(name, counts[name], compacted=False, cut=True)
    final_topics = _topics_of_final_rows(topology, names)
    for subtopology in topology.subtopologies:
        legs = subtopology.legs
        sources = {topic: counts[names(topic, leg.source.internal)] for leg in legs for topic in leg.source.topics}
        for leg in legs:
            _require_one_width(leg, sources)
        width = max(sources.values())
        timed = [leg for leg in legs if leg.keeps_watermark]
        cut = frozenset(leg.store for leg in timed if leg.store is not None)
        joins = frozenset(leg.join.store for leg in legs if leg.join is not None)
        grouped = {store: frozenset(names.sources(*(leg for leg in timed if leg.store == store))) for store in cut}
        for store in subtopology.logged_stores:
            name = names.changelog(store)
            internal[name] = InternalTopic(name, width, compacted=True, cut=store in cut)
        reused = subtopology.reused_topics
        looked_up = {lookup.store for leg in legs for lookup in leg.lookups}
        clocked = {
            leg.emitting.store: frozenset(names.sources(leg))
            for leg in legs
            if leg.emitting is not None and leg.emitting.goes_by_clock
        }
        shape = TaskShape(
            inputs=(),
            changelogs={},
            state_topics=frozenset(names.sources(*(leg for leg in legs if leg.store is not None))),
            stores=subtopology.stores,
            width=width,
            table_topics=frozenset(names.sources(*(leg for leg in legs if leg.store in looked_up))),
            cut=cut,
            timed_topics=frozenset(names.sources(*timed)) - final_topics,
            merged={store: topics for store, topics in grouped.items() if len(topics) > 1 or store in joins},
            joins=joins,
            foreach_batch=any(isinstance(leg.action, ForeachBatch) for leg in legs),
            starts={topic: start for leg in legs for one in leg.sources for topic, start in one.starts.items()},
        )
        by_name = {name: counts[name] for name in names.sources(*legs)}
        for number in range(width):
            tasks[TaskId(subtopology.id, number)] = replace(
                shape,
                inputs=tuple(sorted(TopicPartition(t, number) for t, count in by_name.items() if number < count)),
                changelogs={
                    **{store: TopicPartition(names.changelog(store), number) for store in subtopology.logged_stores},
                    **{store: TopicPartition(t, number) for store, t in reused.items() if number < sources[t]},
                },
                # A task without any of these partitions would never run the step.
                clocked={store: read for store, read in clocked.items() if any(number < by_name[t] for t in read)},
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
    """Return the error of an internal topic whose partition count does not fit."""
    sources = sources_of(topology, names, topic.name)
    if grown := {source: found for source in sources if found < topic.partitions == counts[source]}:
        return grown_source(names.application_id, grown, now=topic.partitions)
    return StreamsException(
        f"internal topic {topic.name!r} has {found} partitions, but the pipeline now needs {topic.partitions}: the "
        "partitions= of a repartition(), or the partition count of a source topic, was changed. Keys would move to "
        "other tasks than their state. Change it back, or reset the application: sparkrelay reset --application-id "
        f"{names.application_id} ..."
    )


def require_same_width(application_id: str, before: TaskLayout, now: TaskLayout) -> None:
    """Reject a changed number of tasks of stores: keys would move, and state would not.

    :func:`lay_out` rejects it for stores with their own changelog, by its partition count.

    Raises:
        StreamsException: a source topic has grown.
    """
    for id_, shape in sorted(before.tasks.items()):
        new = now.tasks.get(id_)
        if shape.stores and new is not None and new.width != shape.width:
            # lay_out() has rejected grown repartition topics.
            sources = shape.state_topics.intersection(now.source_partitions) or now.source_partitions
            raise grown_source(application_id, dict.fromkeys(sources, shape.width), now=new.width)


def require_noted_width(application_id: str, layout: TaskLayout, noted: Mapping[TopicPartition, str]) -> None:
    """Reject a changed number of tasks of tables that reuse their topics.

    ``noted`` are the notes with the group's offsets of these topics.

    Raises:
        StreamsException: a topic has grown.
    """
    for shape in layout.tasks.values():
        for partition in shape.source_changelogs:
            tasks = note_parts(noted.get(partition, "")).get(TASKS)
            if type(tasks) is int and tasks != shape.width:
                raise grown_source(application_id, {partition.topic: tasks}, now=shape.width)


def _topics_of_final_rows(topology: Topology, names: TopicNames) -> frozenset[str]:
    """Return the topics that only get rows of closed windows, so that their silence means nothing."""
    found: set[str] = set()
    for leg in topology.upstream_first:
        final = leg.aggregation is not None and leg.aggregation.final
        if leg.sink is not None and (final or not found.isdisjoint(names.sources(leg))):
            found.add(names(leg.sink.topic, leg.sink.internal))
    return frozenset(found)


def _require_one_width(leg: Leg, counts: Mapping[str, int]) -> None:
    """Reject a store whose topics map a key to different partitions: two tasks would share its rows."""
    topics, step = leg.source.topics, leg.stateful_step
    if step is None or len({counts[topic] for topic in topics}) == 1:
        return
    found = ", ".join(f"{topic!r} has {counts[topic]}" for topic in topics)
    raise StreamsException(
        f"{step.call_site}: {step.text} is of the stream of {leg.source.call_site}, whose topics differ in their "
        f"partition counts: {found}. The rows of a key would be in two tasks. Put repartition(...) with the columns of "
        "its key before it, or give the topics the same number of partitions"
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
            f"{what} is also read or written by the pipeline, which would take dead letters for its rows; use a "
            "separate topic"
        )
    if not (count := partitions.get(topic)):
        raise UnknownTopicException(missing(what, topic))
    return count
