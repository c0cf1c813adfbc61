"""The header of a task's store: one small record that every transaction reads and writes."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sparkrelay.state.lmdb.running_sum import RunningSum
from sparkrelay.state.packing import Packer, Unpacker
from sparkrelay.state.window_keys import MOST_SOURCES, NO_TIME

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.state.changelog import Marker
    from sparkrelay.state.packing import KnownParts
    from sparkrelay.types import TopicPartition

#: The record's first byte.
HEADER_VERSION: Final = 7
#: A flag in an entry's number of pieces: more will follow.
_INCOMPLETE: Final = 1 << 31
_NONE: Final[Mapping[Any, Any]] = MappingProxyType({})


def replaced_topics(known: Mapping[str, str], now: Mapping[str, str]) -> frozenset[str]:
    """Return the topics whose id has changed: they were deleted and re-created."""
    return frozenset(topic for topic, id_ in known.items() if now.get(topic, id_) != id_)


class JournalEntry(NamedTuple):
    """One leg's share of a batch that is applied but not known to be committed. Times are milliseconds since 1970.

    Attributes:
        number: the order of application, also across legs.
        leg: the leg's id.
        batch: the batch's number.
        tries: the newest attempt at the batch.
        store: the changed store.
        contents: the description of the store's contents with the batch.
        ranges: input partition -> offsets ``[from, to)``.
        keys: the number of changed keys.
        pieces: the number of journal records with the changed keys and their old values.
        watermark: the store's with the batch.
        rows_late: the number of dropped late rows.
        last_end: the end of the store's last window.
        next_end: the end of its first window that is not over; ``NO_TIME`` if there is none.
        expired: the end up to which the store's windows are removed with the batch.
        sources: source topic -> its own watermark with the batch, where that is kept.
        sources_read: the source topics of which the batch had rows.
        complete: False while more changes of the share follow.
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
        """The leg's input positions after the batch."""
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
        record.names(self.sources_read)
        record.offsets({partition: start for partition, (start, _) in self.ranges.items()})
        record.offsets(self.positions_after)


class TaskHeader(NamedTuple):
    """The state of a task's store. Times are milliseconds since 1970.

    Attributes:
        task_epoch: the epoch of the task's owner, who may change the store.
        batch: the last batch in the state that is known to be committed; 0 if there is none.
        positions: input partition -> next offset after ``batch``.
        changelog: changelog partition -> offset at which a restore from ``batch`` continues.
        boot_id: the boot under which the store was last written.
        clean: True from a synced close to the next write.
        journals: shares applied beyond ``batch``, in the order of application, all of one attempt at one batch.
        next_journal: the number of the next journal.
        application: the application.id of the state; empty before the first owner.
        contents: store -> the description of its contents; pipelines with another one are rejected.
        topics: changelog and source topic -> its id, to which offsets and ``positions`` belong: a re-created topic has
            another one.
        watermarks: store -> its watermark after ``batch``; windows that end by then are over and take no more rows.
        expired: store -> the end up to which windows are removed with ``batch``, at most its watermark.
        sources: store -> source topic -> its own watermark after ``batch``, where that is kept.
        sums: store -> the running sum of its rows, including all that is applied.
        instance: the running instance that opened the state last; empty if unknown.
        suspect: stores that an earlier instance did not close, and that have not been read through since.
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
        """Return a store's watermark after a batch, or (None) after all that is applied."""
        return max(self.watermarks.get(store, NO_TIME), *(one.watermark for one in self.shares(store, batch)), NO_TIME)

    def expired_by(self, store: str, batch: int | None = None) -> int:
        """Return the end up to which a store's windows are removed with a batch, or (None) will be."""
        return max(self.expired.get(store, NO_TIME), *(one.expired for one in self.shares(store, batch)), NO_TIME)

    def sources_of(self, store: str, batch: int | None = None) -> Mapping[str, int]:
        """Return the watermarks of a store's source topics after a batch, or (None) after all that is applied."""
        own = self.shares(store, batch)
        return own[-1].sources if own else self.sources.get(store, {})

    def shares(self, store: str, batch: int | None = None) -> list[JournalEntry]:
        """Return the journals of a store up to a batch, or (None) all of them."""
        return [one for one in self.journals if one.store == store and (batch is None or one.batch <= batch)]

    def following(self, store: str, marker: Marker) -> TaskHeader:
        """Return the header after a store was restored up to a marker, where that is ahead.

        Each changelog has its own markers. Their numbers do not show which one is ahead: batches without a stateful leg
        leave none, and a new owner continues from the last one it saw.
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
        """Return the header with these ids of source topics, without the positions in topics of other ids."""
        if topics.items() <= self.topics.items():
            return self
        replaced = replaced_topics(self.topics, topics)
        positions = {p: offset for p, offset in self.positions.items() if p.topic not in replaced}
        return self._replace(positions=positions, topics={**self.topics, **topics})

    def _positions_following(self, marker: Marker) -> tuple[dict[TopicPartition, int], dict[str, str]]:
        """Return the positions after a marker, and the ids of their topics.

        If a source topic was replaced between two markers, the higher batch number is the newer one: an owner continues
        from the highest number among all committed markers of the task.
        """
        held = self.reading(marker.topics) if marker.batch > self.batch else self
        older = replaced_topics(marker.topics, held.topics)
        ahead = {
            p: max(offset, held.positions.get(p, 0)) for p, offset in marker.positions.items() if p.topic not in older
        }
        return {**held.positions, **ahead}, {**marker.topics, **held.topics}

    def encode(self, known: KnownParts | None = None) -> bytes:
        """Return the record (docs/internals/changelog.md); unchanged parts are reused from ``known``."""
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
        record.part(known, "suspect", self.suspect, Packer.names)
        record.u32(self.next_journal & 0xFFFFFFFF)
        record.u32(len(self.journals))
        for entry in self.journals:
            entry.encode(record)
        return record.data()

    @classmethod
    def decode(cls, data: bytes, what: str) -> TaskHeader:
        """Read a record; ``what`` names the store in errors.

        Raises:
            StoreCorruptedException: it is damaged, or of an unknown version.
        """
        record = Unpacker(data, what, versions=frozenset({HEADER_VERSION}))
        numbers, boot = (record.i64(), record.i64()), (record.text(), bool(record.u8()))
        offsets, application = (record.offsets(), record.offsets()), record.text()
        words = record.texts(), record.texts()
        watermarks, expired = {}, {}
        for _ in range(record.u32()):
            store, watermark = record.text(), record.i64()
            watermarks[store], expired[store] = watermark, record.i64_up_to(watermark)
        sources = {record.text(): record.times(most=MOST_SOURCES) for _ in range(record.u32())}
        sums = {
            record.text(): RunningSum(record.i64(), record.u64(), record.short_bytes(), record.u64())
            for _ in range(record.u32())
        }
        opened = record.text(), record.names()
        next_journal = record.u32()
        journals = tuple(_entry(record) for _ in range(record.u32()))
        of_batch = *numbers, *offsets, *boot
        ends = watermarks, expired
        return cls(*of_batch, journals, next_journal, application, *words, *ends, sources, sums, *opened)


def _pack_sources(record: Packer, sources: Mapping[str, Mapping[str, int]]) -> None:
    record.u32(len(sources))
    for store, times in sorted(sources.items()):
        record.text(store)
        record.times(times)


def _entry(record: Unpacker) -> JournalEntry:
    share = record.u32(), record.text(), record.i64(), record.u32(), record.text(), record.text()
    keys, pieces = record.u32(), record.u32()
    watermark, rows_late, last_end, next_end = record.i64(), record.u32(), record.i64(), record.i64()
    times = watermark, rows_late, last_end, next_end, record.i64_up_to(watermark)
    sources = record.times(most=MOST_SOURCES), record.names()
    starts, ends = record.offsets(), record.offsets()
    ranges = {partition: (start, ends[partition]) for partition, start in starts.items()}
    return JournalEntry(
        *share, ranges, keys, pieces & ~_INCOMPLETE, *times, *sources, complete=not pieces & _INCOMPLETE
    )
