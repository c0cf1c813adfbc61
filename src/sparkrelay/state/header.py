"""What a task's store knows about itself, in one small record that every transaction reads and writes."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sparkrelay.state.lmdb.running_sum import RunningSum
from sparkrelay.state.packing import Packer, Unpacker
from sparkrelay.state.watermarks import MOST_SOURCES, NO_TIME

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.state.changelog import Marker
    from sparkrelay.state.packing import KnownParts
    from sparkrelay.types import TopicPartition

__all__ = ["HEADER_VERSION", "JournalEntry", "TaskHeader", "replaced_topics"]

#: Of the record, its first byte.
HEADER_VERSION: Final = 7
#: In an entry's count of pieces: there will be more.
_INCOMPLETE: Final = 1 << 31
_NONE: Final[Mapping[Any, Any]] = MappingProxyType({})


def replaced_topics(known: Mapping[str, str], now: Mapping[str, str]) -> frozenset[str]:
    """Return the topics that have another id now than the one that is known: they were deleted and created again."""
    return frozenset(topic for topic, id_ in known.items() if now.get(topic, id_) != id_)


class JournalEntry(NamedTuple):
    """One leg's share of a batch that is applied but not known as committed.

    Attributes:
        number: order of application, also across legs.
        leg: the leg's id.
        batch: the batch's number.
        tries: number of the newest attempt at the batch.
        store: the store that changed.
        contents: what the store holds with it, in words.
        ranges: input partition -> offsets ``[from, to)``.
        keys: how many keys changed.
        pieces: in how many the changed keys and their old values are kept.
        watermark: that of the store with the batch, in milliseconds since 1970.
        rows_late: how many rows were left out because their window was over.
        last_end: when the last of the store's windows ends, in milliseconds since 1970.
        next_end: when the first of its windows ends that are not over; ``NO_TIME``: there is none.
        expired: of the store with the batch: windows that end by then are removed, in milliseconds since 1970.
        sources: source topic -> the watermark of its rows alone, with the batch, where that is kept.
        sources_read: which of those topics the batch had rows of.
        complete: False while more changes of the share are to come.
    """

    number: int
    leg: str
    batch: int
    tries: int
    store: str
    contents: str
    ranges: Mapping[TopicPartition, tuple[int, int]]
    keys: int
    pieces: int = 0
    watermark: int = NO_TIME
    rows_late: int = 0
    last_end: int = NO_TIME
    next_end: int = NO_TIME
    expired: int = NO_TIME
    sources: Mapping[str, int] = _NONE
    sources_read: frozenset[str] = frozenset()
    complete: bool = True

    @property
    def positions_after(self) -> dict[TopicPartition, int]:
        """Input positions of the leg once the batch is in."""
        return {partition: end for partition, (_, end) in self.ranges.items()}

    def encode(self, record: Packer) -> None:
        """Append the entry."""
        record.u32(self.number)
        record.text(self.leg)
        record.i64(self.batch)
        record.u32(self.tries)
        record.text(self.store)
        record.text(self.contents)
        record.u32(self.keys)
        record.u32(self.pieces if self.complete else self.pieces | _INCOMPLETE)
        record.i64(self.watermark)
        record.u32(self.rows_late)
        record.i64(self.last_end)
        record.i64(self.next_end)
        record.i64(self.expired)
        record.times(self.sources)
        _pack_names(record, self.sources_read)
        record.offsets({partition: start for partition, (start, _) in self.ranges.items()})
        record.offsets(self.positions_after)


class TaskHeader(NamedTuple):
    """Where a task's store stands.

    Attributes:
        task_epoch: number of the owner of the task that may change the store.
        batch: last batch that is in the state and known as committed; 0 if none is.
        positions: input partition -> next offset after ``batch``, as far as the store has seen.
        changelog: changelog partition -> offset where a restore goes on to get from ``batch`` to later ones.
        boot_id: boot under which the store was last written.
        clean: True from a synced close to the next write.
        journals: what is applied beyond ``batch``, in the order of application: of one batch, all of one try.
        next_journal: number of the next journal.
        application: application.id that the state belongs to; empty until the first owner.
        contents: store -> what it holds, in words; a pipeline that wants something else is refused.
        topics: changelog and source topic -> its id. After a topic was deleted and created again its id is another
            one, and its offsets mean other records. ``positions`` belong to the source topics with these ids.
        watermarks: store -> its watermark after ``batch``; windows that end by then are over, and take no further rows.
        expired: store -> by when windows have ended that are removed with ``batch``; never beyond its watermark.
        sources: store -> source topic -> the watermark of its rows alone after ``batch``, where that is kept.
        sums: store -> what its rows add up to, with everything that is applied.
        instance: the running instance that opened the state last; empty if nobody has said.
        suspect: stores that an instance before did not close and that have not been read through since.
    """

    task_epoch: int = 0
    batch: int = 0
    positions: Mapping[TopicPartition, int] = _NONE
    changelog: Mapping[TopicPartition, int] = _NONE
    boot_id: str = ""
    clean: bool = False
    journals: tuple[JournalEntry, ...] = ()
    next_journal: int = 0
    application: str = ""
    contents: Mapping[str, str] = _NONE
    topics: Mapping[str, str] = _NONE
    watermarks: Mapping[str, int] = _NONE
    expired: Mapping[str, int] = _NONE
    sources: Mapping[str, Mapping[str, int]] = _NONE
    sums: Mapping[str, RunningSum] = _NONE
    instance: str = ""
    suspect: frozenset[str] = frozenset()

    def watermark(self, store: str, batch: int | None = None) -> int:
        """Return a store's watermark after a batch, or after all that is applied, in milliseconds since 1970."""
        own = (entry for entry in self.journals if entry.store == store)
        applied = (entry.watermark for entry in own if batch is None or entry.batch <= batch)
        return max(self.watermarks.get(store, NO_TIME), *applied, NO_TIME)

    def expired_by(self, store: str) -> int:
        """Return by when windows of a store have ended that are removed, or will be, in milliseconds since 1970."""
        applied = (entry.expired for entry in self.journals if entry.store == store)
        return max(self.expired.get(store, NO_TIME), *applied, NO_TIME)

    def sources_of(self, store: str, batch: int | None = None) -> Mapping[str, int]:
        """Return the watermarks of a store's source topics after a batch, or after all that is applied."""
        own = [entry for entry in self.journals if entry.store == store and (batch is None or entry.batch <= batch)]
        return own[-1].sources if own else self.sources.get(store, {})

    def following(self, store: str, marker: Marker) -> TaskHeader:
        """Return where the task stands once a store has followed its changelog up to a marker, as far as it is ahead.

        With several stores, each changelog has markers of its own. Their numbers do not say which one is ahead: batches
        without a stateful leg leave none, and a new owner counts on from the last one it saw.
        """
        positions, topics = self._positions_following(marker)
        watermarks, expired, sources = dict(self.watermarks), dict(self.expired), dict(self.sources)
        if marker.watermark != NO_TIME:
            watermarks[store] = max(marker.watermark, watermarks.get(store, NO_TIME))
            expired[store] = max(marker.expired, expired.get(store, NO_TIME))
        if marker.sources:
            known = sources.get(store, {})
            sources[store] = {topic: max(ms, known.get(topic, NO_TIME)) for topic, ms in marker.sources.items()}
        return self._replace(
            batch=max(self.batch, marker.batch),
            positions=positions,
            topics=topics,
            contents={**self.contents, store: marker.contents},
            watermarks=watermarks,
            expired=expired,
            sources=sources,
        )

    def reading(self, topics: Mapping[str, str]) -> TaskHeader:
        """Return the header of a task that reads the source topics with these ids.

        Positions in a topic that had another id mean nothing in this one.
        """
        if topics.items() <= self.topics.items():
            return self
        replaced = replaced_topics(self.topics, topics)
        positions = {p: offset for p, offset in self.positions.items() if p.topic not in replaced}
        return self._replace(positions=positions, topics={**self.topics, **topics})

    def _positions_following(self, marker: Marker) -> tuple[dict[TopicPartition, int], dict[str, str]]:
        """Return the positions after a marker, and the ids of the topics that they belong to.

        If a source topic was replaced between two markers, the one with the higher batch number is the newer one: an
        owner counts on from the highest number among all committed markers of the task.
        """
        held = self.reading(marker.topics) if marker.batch > self.batch else self
        older = replaced_topics(marker.topics, held.topics)
        ahead = {
            p: max(offset, held.positions.get(p, 0)) for p, offset in marker.positions.items() if p.topic not in older
        }
        return {**held.positions, **ahead}, {**marker.topics, **held.topics}

    def encode(self, known: KnownParts | None = None) -> bytes:
        """Return the record; docs/internals/changelog.md has its layout.

        Args:
            known: the parts of the last record of this store, by which those that are the same are not made again.
        """
        known = {} if known is None else known
        record = Packer(HEADER_VERSION)
        record.i64(self.task_epoch)
        record.i64(self.batch)
        record.text(self.boot_id)
        record.u8(int(self.clean))
        record.offsets(self.positions)
        record.offsets(self.changelog)
        record.text(self.application)
        record.part(known, "contents", self.contents, Packer.texts)
        record.part(known, "topics", self.topics, Packer.texts)
        record.u32(len(self.watermarks))
        for store, watermark in sorted(self.watermarks.items()):
            record.text(store)
            record.i64(watermark)
            record.i64(self.expired.get(store, NO_TIME))
        record.part(known, "sources", self.sources, _pack_sources)
        record.u32(len(self.sums))
        for store, sums in sorted(self.sums.items()):
            record.text(store)
            record.i64(sums.rows)
            record.u64(sums.total)
            record.short_bytes(sums.scrubbed_to)
            record.u64(sums.scrubbed)
        record.text(self.instance)
        record.part(known, "suspect", self.suspect, _pack_names)
        record.u32(self.next_journal & 0xFFFFFFFF)
        record.u32(len(self.journals))
        for entry in self.journals:
            entry.encode(record)
        return record.data()

    @classmethod
    def decode(cls, data: bytes, what: str) -> TaskHeader:
        """Read a record; ``what`` names the store in errors.

        Raises:
            StoreCorruptedException: it is of an unknown version, or damaged.
        """
        record = Unpacker(data, what, versions=frozenset({HEADER_VERSION}))
        task_epoch, batch, boot, clean = record.i64(), record.i64(), record.text(), bool(record.u8())
        positions, changelog, application = record.offsets(), record.offsets(), record.text()
        contents, topics = record.texts(), record.texts()
        watermarks, expired = {}, {}
        for _ in range(record.u32()):
            store, watermark = record.text(), record.i64()
            watermarks[store], expired[store] = watermark, record.i64_up_to(watermark)
        sources = {record.text(): record.times(most=MOST_SOURCES) for _ in range(record.u32())}
        sums = {
            record.text(): RunningSum(record.i64(), record.u64(), record.short_bytes(), record.u64())
            for _ in range(record.u32())
        }
        instance = record.text()
        suspect = frozenset(record.text() for _ in range(record.u32()))
        following = record.u32()
        journals = tuple(_entry(record) for _ in range(record.u32()))
        return cls(
            task_epoch,
            batch,
            positions,
            changelog,
            boot,
            clean,
            journals,
            following,
            application,
            contents,
            topics,
            watermarks,
            expired,
            sources,
            sums,
            instance,
            suspect,
        )


def _pack_sources(record: Packer, sources: Mapping[str, Mapping[str, int]]) -> None:
    record.u32(len(sources))
    for store, times in sorted(sources.items()):
        record.text(store)
        record.times(times)


def _pack_names(record: Packer, names: frozenset[str]) -> None:
    record.u32(len(names))
    for name in sorted(names):
        record.text(name)


def _entry(record: Unpacker) -> JournalEntry:
    number, leg, batch, tries = record.u32(), record.text(), record.i64(), record.u32()
    store, contents, keys, pieces = record.text(), record.text(), record.u32(), record.u32()
    watermark, rows_late, last_end, next_end = record.i64(), record.u32(), record.i64(), record.i64()
    expired = record.i64_up_to(watermark)
    sources = record.times(most=MOST_SOURCES)
    sources_read = frozenset(record.text() for _ in range(record.u32()))
    starts, ends = record.offsets(), record.offsets()
    ranges = {partition: (start, ends[partition]) for partition, start in starts.items()}
    return JournalEntry(
        number,
        leg,
        batch,
        tries,
        store,
        contents,
        ranges,
        keys,
        pieces & ~_INCOMPLETE,
        watermark,
        rows_late,
        last_end,
        next_end,
        expired,
        sources,
        sources_read,
        complete=not pieces & _INCOMPLETE,
    )
