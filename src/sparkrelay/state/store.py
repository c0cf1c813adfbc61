"""One task's local state: its stores, journals and positions in one LMDB environment.

Several processes may have it open: whoever writes compares, in the same transaction, what it was sent with what
stands there, so a zombie is refused by whatever it missed. Each batch leaves a journal until it is known as
committed; with it the batch can be taken back. So state survives a SIGKILL anywhere, and is never wiped for it, as
Kafka Streams wipes its own under exactly-once (KIP-892 plans against that).

A header holds the *committed* position; what lies beyond it is exactly what the journals hold. Undoing therefore
never computes a position, and two legs that read one topic do not see each other's progress.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import pyarrow as pa

from sparkrelay import host
from sparkrelay.errors import (
    StateStoreException,
    StoreCorruptedException,
    StoreOutOfStepException,
)
from sparkrelay.own_files import make_directory
from sparkrelay.state import checks, cleanliness, journal, rows, scan
from sparkrelay.state.batch import Applied, BatchStamp, LookedUp, MergeResult, Watermark
from sparkrelay.state.environment import DATA_FILE, Environment
from sparkrelay.state.file_lock import FileLock
from sparkrelay.state.header import JournalEntry, TaskHeader
from sparkrelay.state.space import FULL_DISK, full_disk
from sparkrelay.state.view import Changes, StoreView, merging
from sparkrelay.state.watermarks import ENDLESS, NO_TIME, end_of, expired_with, over

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from sparkrelay.state.changelog import Marker
    from sparkrelay.types import TopicPartition

__all__ = ["TaskStore"]

T = TypeVar("T")

_META: Final = "#meta"
_JOURNAL: Final = "#journal"
_STORE_PREFIX: Final = "s:"
_HEADER: Final = b"header"
_CLEANLINESS_LOCK: Final = "boot.lock"
_CLEANLINESS_SECONDS: Final = 60.0
_DEFAULT_LIMIT: Final = 64 << 30
#: Windows that have expired are removed so many at a time, and twice as many as a batch has keys.
_DROPPED: Final = 10_000


class TaskStore:
    """The open state of one task. Made by :meth:`open`; threads of a process take turns."""

    def __init__(self, path: Path, environment: Environment) -> None:
        self.path = path
        self._environment = environment
        self._meta = environment.database(_META)
        self._journal = environment.database(_JOURNAL)
        self._clean_lock = FileLock(path / _CLEANLINESS_LOCK)

    @classmethod
    def open(cls, path: Path, *, map_limit: int = _DEFAULT_LIMIT, create: bool = True) -> Self:
        """Open a task's state, made if it is missing.

        Args:
            path: the task's directory.
            map_limit: bound on its size, bytes (``store.max.bytes``).
            create: False to refuse a task without state.

        Raises:
            StoreCorruptedException: written before the machine's last start and not closed cleanly, or damaged: move
                it away with :func:`~sparkrelay.state.removal.set_aside` and restore it.
            StateStoreException: the directory cannot be used, or the state is already open in this process.
        """
        try:
            if (path / DATA_FILE).exists():
                cleanliness.check(path)
            elif not create:
                raise StateStoreException(f"there is no state in {path}")
            else:
                make_directory(path)
                cleanliness.mark(path, clean=False, durable=False)
        except OSError as error:
            if error.errno in FULL_DISK:
                raise full_disk(path, str(error.strerror)) from error
            raise StateStoreException(
                f"the state in {path} cannot be opened ({error.strerror}); state.dir must be a directory that this "
                "user may write to"
            ) from error
        return cls(path, Environment(path, map_limit=map_limit))

    def close(self, *, clean: bool) -> None:
        """Close; ``clean`` syncs to the disk and marks the state as good for after a reboot."""
        try:
            if clean:
                self._mark_clean()
        finally:
            self._environment.close()

    @property
    def header(self) -> TaskHeader:
        """Where the store stands, as of now."""
        return self._environment.read(self._load)

    # -- reading --------------------------------------------------------------------------------------------------

    def read(self, store: str, keys: pa.Array) -> pa.Array:
        """Return the value of each key, null where there is none."""
        table = self._table(store)
        wanted = rows.as_binary(keys)
        return self._environment.read(lambda t: rows.get(t, table, wanted))

    def scan(
        self, store: str, *, start: bytes | None = None, stop: bytes | None = None, limit: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield ``key, value`` batches of the keys in ``[start, stop)``, in the order of bytes.

        Each batch is of one moment; between two of them the store may move on. Keys beyond 479 bytes that begin alike
        come in no particular order among themselves.
        """
        return scan.scan(self._environment, self._table(store), start, stop, limit)

    def rows(self, store: str) -> int:
        """Return how many keys a store holds."""
        table = self._table(store)
        return int(self._environment.read(lambda t: t.stat(table))["entries"])

    # -- batches --------------------------------------------------------------------------------------------------

    def apply_batch(
        self,
        leg: str,
        store: str,
        keys: pa.Array,
        *,
        batch: BatchStamp,
        merge: Callable[[pa.Array], MergeResult],
        watermark: Watermark | None = None,
    ) -> Applied:
        """Merge a leg's share of a batch into a store.

        All in one transaction: the stamp is checked, journals of committed batches are dropped, what an earlier try of
        the batch did is taken back, old values are read, merged and replaced, and the leg's journal is written.

        An earlier try is never taken for the batch: to a worker, a Spark task that failed looks like the end of its
        input, so what that try applied may be a part.

        Args:
            leg: the leg's id.
            store: the store's name.
            keys: distinct keys, none of them null; fastest where they come in the order of bytes.
            batch: what the driver sent along.
            merge: old values (null where missing, in the order of ``keys``) -> new values and rows to emit. Called
                again if the map had to grow.
            watermark: of a store whose windows end: what it is with the batch. What had expired before the batch, by a
                watermark that is committed, is removed some at a time, and no undoing brings it back.

        Raises:
            StoreOutOfStepException: the store is not where the batch expects it; nothing changed.
            StoreFullException: the disk or the map is full; nothing changed.
            IncompatibleTopologyException: the store holds something else than the pipeline wants.
        """
        return self.change_batch(leg, store, batch=batch, operate=merging(store, keys, merge, watermark))

    def change_batch(
        self, leg: str, store: str, *, batch: BatchStamp, operate: Callable[[StoreView], Changes]
    ) -> Applied:
        """Have an operator change a store by a leg's share of a batch, as :meth:`apply_batch` does for one that merges.

        Args:
            leg: the leg's id.
            store: the store's name; other legs of the batch may change it too.
            batch: what the driver sent along.
            operate: reads the store and says what changes. Called again if the map had to grow.

        Raises:
            StoreOutOfStepException: the store is not where the batch expects it; nothing changed.
            StoreFullException: the disk or the map is full; nothing changed.
            IncompatibleTopologyException: the store holds something else than the pipeline wants.
        """
        table = self._table(store)
        if batch.tries > 1:
            self._open_tables_of_journals()

        def change(transaction: Any, header: TaskHeader) -> tuple[TaskHeader, Applied]:
            header = self._begin(transaction, header, leg, batch)
            checks.require_contents(header, store, batch.contents)
            checks.require_positions(self.path, header, leg, batch)
            before, expired = header.watermarks.get(store, NO_TIME), header.expired.get(store, NO_TIME)
            view = StoreView(transaction, table, header, store)
            changes = operate(view)
            self._drop_expired(transaction, table, expired, len(changes.keys))
            self._put(transaction, table, changes.ordered.keys, changes.ordered.as_stored(changes.new))
            number, undo = header.next_journal, pa.record_batch([changes.keys, changes.old], ["key", "old"])
            pieces = journal.write(transaction, self._journal, number, undo, changes.beside)
            ranges = dict(batch.ranges)
            entry = JournalEntry(
                number, leg, batch.number, batch.tries, store, batch.contents, ranges, len(changes.keys), pieces
            )
            windows = None
            if (watermark := changes.watermark) is not None:
                now, last = max(watermark.ms, before), rows.last_key(transaction, table, ENDLESS)
                following = rows.first_key(transaction, table, over(now))
                entry = replace(
                    entry,
                    watermark=now,
                    rows_late=watermark.rows_late,
                    last_end=NO_TIME if last is None else end_of(last),
                    next_end=NO_TIME if following is None or following >= ENDLESS else end_of(following),
                    expired=expired_with(now, watermark.retention_ms, expired),
                    sources=watermark.sources,
                    sources_read=watermark.sources_read,
                )
                windows = rows.between(transaction, table, over(before), over(now)) if watermark.final else None
            header = replace(header, journals=(*header.journals, entry), next_journal=(entry.number + 1) & 0xFFFFFFFF)
            return header, Applied(changes.emitted, changes.keys, changes.new, entry, windows)

        return self._change(change)

    def watermark_before(self, store: str, *, batch: BatchStamp) -> int:
        """Return what a store's watermark is before a batch, in milliseconds since 1970; no try of the batch counts.

        Raises:
            StoreOutOfStepException: the store was taken over under another task epoch, or is beyond the batch.
        """
        header = self.header
        checks.require_this_batch(self.path, header, batch)
        return header.watermark(store, batch.committed)

    def sources_before(self, store: str, *, batch: BatchStamp) -> Mapping[str, int]:
        """Return the watermarks of a store's source topics before a batch; else as :meth:`watermark_before`."""
        header = self.header
        checks.require_this_batch(self.path, header, batch)
        return header.sources_of(store, batch.committed)

    def journal_of(self, leg: str, *, number: int, tries: int) -> JournalEntry | None:
        """Return what the journal says of a leg's share of a batch; None if that try has left none."""
        wanted = (leg, number, tries)
        return next((e for e in self.header.journals if (e.leg, e.batch, e.tries) == wanted), None)

    def look_up(
        self,
        store: str,
        keys: pa.Array,
        *,
        contents: str,
        task_epoch: int | None = None,
        number: int = 0,
        tries: int = 0,
    ) -> LookedUp:
        """Return what a store holds for keys, and what the batch under way has done to it, all of one moment.

        Args:
            store: the store's name.
            keys: which.
            contents: what the pipeline means the store to hold, in words.
            task_epoch: of the batch; None where the reader is in no batch of the store's.
            number: of the batch, likewise 0.
            tries: of the attempt at it, likewise 0.

        Raises:
            StoreOutOfStepException: the store was taken over under another task epoch.
            IncompatibleTopologyException: the store holds something else than the pipeline wants.
        """
        table = self._table(store)
        wanted = rows.as_binary(keys)

        def read(transaction: Any) -> LookedUp:
            header = self._load(transaction)
            checks.require_task_epoch(self.path, header, task_epoch)
            checks.require_contents(header, store, contents)
            values = rows.get(transaction, table, wanted)
            for entry in header.journals:
                if (entry.store, entry.batch, entry.tries) == (store, number, tries):
                    return LookedUp(values, *journal.read(transaction, self._journal, entry))
            return LookedUp(values)

        return self._environment.read(read)

    def take_over(self, task_epoch: int) -> list[tuple[str, int]]:
        """Let only batches of this task epoch change the store, and take back what is not known here as committed.

        Once for each task epoch: a command that comes late, after its batches have begun, takes nothing back. Of 0,
        the epoch of a copy that nobody runs, there are no batches.

        Task epochs are compared for equality only: they come from producer ids, which a cluster of several
        brokers does not hand out in order. One that comes late costs the owner another take-over, no state.

        Returns:
            The leg and number of each batch that was taken back, last one first.
        """

        def change(transaction: Any, header: TaskHeader) -> tuple[TaskHeader, list[tuple[str, int]]]:
            if header.task_epoch == task_epoch != 0:
                return header, []
            undone = [(entry.leg, entry.batch) for entry in reversed(header.journals)]
            return replace(self._take_back(transaction, header), task_epoch=task_epoch), undone

        self._open_tables_of_journals()
        return self._change(change)

    def take_over_at(self, task_epoch: int, committed: Mapping[TopicPartition, int | None]) -> bool:
        """Take over stores without changelog: afterwards they stand at the group's offsets, or are empty.

        A batch that ends at these offsets is committed, and kept, as nothing could bring it again.

        Args:
            task_epoch: the new owner's.
            committed: the group's offset of each partition that the stores are made of, None where there is none.

        Returns:
            Whether the stores stood elsewhere: the task ran elsewhere, was reset, or is new here.
        """

        def change(transaction: Any, header: TaskHeader) -> tuple[TaskHeader, bool]:
            if header.task_epoch == task_epoch != 0:
                return header, False
            after = {p: offset for entry in header.journals for p, offset in entry.positions_after.items()}
            if after and all(committed.get(p) == offset for p, offset in after.items()):
                header = self._drop_journals(transaction, header, header.journals[-1].batch, {})
            header = replace(self._take_back(transaction, header), task_epoch=task_epoch)
            if {p: header.positions.get(p) for p in committed} == committed:
                return header, False
            for table in tables:
                transaction.drop(table, delete=False)
            return replace(header, positions={}, contents={}, watermarks={}, expired={}, sources={}), True

        held = self.header
        tables = [self._table(store) for store in sorted({*held.contents, *(entry.store for entry in held.journals)})]
        return self._change(change)

    def commit_known(
        self, batch: int, changelog_next: Mapping[TopicPartition, int], *, task_epoch: int | None = None
    ) -> None:
        """Drop the journals up to ``batch``, which is committed, where no next batch will say so.

        Raises:
            StoreOutOfStepException: it comes late: the store was taken over under another task epoch.
        """

        def change(transaction: Any, header: TaskHeader) -> tuple[TaskHeader, None]:
            checks.require_task_epoch(self.path, header, task_epoch)
            return self._drop_journals(transaction, header, batch, changelog_next), None

        self._change(change)

    def claim(self, application: str, topics: Mapping[str, str] | None = None, width: int | None = None) -> None:
        """Make sure that the state is this application's, and of its changelogs as they are.

        Args:
            application: the application.id.
            topics: changelog topic -> its id, as far as known.
            width: for stores without changelog, the number of tasks that they are spread over.

        Raises:
            StoreCorruptedException: it was copied from another one: its positions and values mean nothing here.
            IncompatibleTopologyException: the number of tasks is another one.
            StateStoreException: a changelog was made anew. Whether the state or the new topic is right, nobody knows
                here: after a reset it is the topic, after an accident the state.
        """

        def change(_: Any, header: TaskHeader) -> tuple[TaskHeader, None]:
            noted = checks.claimed_topics(self.path, header, application, topics or {}, width)
            return replace(header, application=application, topics={**header.topics, **noted}), None

        self._change(change)

    def keep_only(
        self, changelogs: Mapping[str, TopicPartition], *, task_epoch: int | None = None
    ) -> list[TopicPartition]:
        """Empty the stores that the task has no more; return their changelogs. Nothing may be unfinished.

        Args:
            changelogs: store -> changelog partition, of every store that the task has now.
            task_epoch: of the owner that this is for.

        Raises:
            StoreOutOfStepException: it comes late: the store was taken over under another task epoch.
            StoreCorruptedException: it has none of those that are here: sub-topologies have changed their numbers, and
                this is the state of another one.
        """
        wanted = set(changelogs.values())
        known = self.header.changelog
        foreign = [partition for partition in known if partition not in wanted]
        if foreign and len(foreign) == len(known):
            raise StoreCorruptedException(
                f"the state in {self.path} is of {', '.join(map(str, sorted(foreign)))}, but task {self.path.name} has "
                f"{', '.join(map(str, sorted(wanted)))} now: the pipeline's sub-topologies were renumbered, or its "
                "stores renamed"
            )
        # A store that was restored without a marker is not among the contents.
        named = {_store_of(partition.topic, self.header.application) for partition in foreign}
        stores = ({*self.header.contents} | named) - {*changelogs} if foreign else set()
        tables = [self._table(store) for store in sorted(stores)]

        def change(transaction: Any, header: TaskHeader) -> tuple[TaskHeader, list[TopicPartition]]:
            checks.require_task_epoch(self.path, header, task_epoch)
            for table in tables:
                transaction.drop(table, delete=False)
            return replace(
                header,
                changelog={p: offset for p, offset in header.changelog.items() if p in wanted},
                topics={t: id_ for t, id_ in header.topics.items() if t in {p.topic for p in wanted}},
                contents={store: words for store, words in header.contents.items() if store not in stores},
                watermarks={store: ms for store, ms in header.watermarks.items() if store not in stores},
                expired={store: ms for store, ms in header.expired.items() if store not in stores},
                sources={store: topics for store, topics in header.sources.items() if store not in stores},
            ), foreign

        return self._change(change) if foreign else []

    def require_source(
        self, store: str, changelog: TopicPartition, end: int | None, *, contents: str, task_epoch: int | None = None
    ) -> int | None:
        """Empty a table whose changelog is an input of its task, unless it is a beginning of that input.

        It is none where it was restored from another changelog, or where the group's offset was set back behind it:
        what the topic has from there on is read again. Nor is one that holds other columns than it is to hold.

        Args:
            store: the table's.
            changelog: the input partition.
            end: the group's offset, None where that is not known.
            contents: what the pipeline means the store to hold, in words.
            task_epoch: of the owner that this is for.

        Returns:
            Where the table stood if it was beyond ``end``, else None.

        Raises:
            StoreOutOfStepException: it comes late: the store was taken over under another task epoch.
        """
        table = self._table(store)

        def change(transaction: Any, header: TaskHeader) -> tuple[TaskHeader, int | None]:
            checks.require_task_epoch(self.path, header, task_epoch)
            known = header.changelog.get(changelog)
            beyond = known is not None and end is not None and known > end
            if known is not None and not beyond and header.contents.get(store, contents) == contents:
                return header, None
            transaction.drop(table, delete=False)
            return replace(
                header,
                changelog={p: offset for p, offset in header.changelog.items() if p != changelog},
                positions={p: offset for p, offset in header.positions.items() if p != changelog},
                contents={name: words for name, words in header.contents.items() if name != store},
            ), known if beyond else None

        return self._change(change)

    # -- restoring ------------------------------------------------------------------------------------------------

    def restore(  # noqa: PLR0917 - a slice has these six parts
        self,
        store: str,
        changelog: TopicPartition,
        keys: pa.Array,
        values: pa.Array,
        next_offset: int,
        marker: Marker | None,
        *,
        task_epoch: int | None = None,
        is_source: bool = False,
    ) -> None:
        """Apply a slice of a changelog, in one transaction; null values delete, of equal keys the last one counts.

        The batch and the positions follow the slice's last marker, as far as it is ahead. Where the changelog is an
        input, too (``is_source``), what is restored of it is what the state has seen.

        Raises:
            StoreOutOfStepException: a batch is unfinished here (undo it first), or the store is beyond this slice, or
                was taken over under another task epoch.
        """
        table = self._table(store)
        ordered, new = rows.latest(rows.as_binary(keys), rows.as_binary(values))

        def change(transaction: Any, header: TaskHeader) -> tuple[TaskHeader, None]:
            checks.require_task_epoch(self.path, header, task_epoch)
            checks.require_no_journals(self.path, header, changelog)
            known = header.changelog.get(changelog, 0)
            if next_offset < known:
                raise StoreOutOfStepException(
                    f"task {self.path.name}: a slice of {changelog} up to offset {next_offset} came after the store "
                    f"had reached {known}"
                )
            self._put(transaction, table, ordered, new)
            header = replace(header, changelog={**header.changelog, changelog: next_offset})
            if marker is not None:
                header = header.following(store, marker)
                self._drop_expired(transaction, table, header.expired.get(store, NO_TIME), len(ordered))
            if is_source:
                header = replace(header, positions={**header.positions, changelog: next_offset})
            return header, None

        self._change(change)

    def restore_reached(
        self, changelog: TopicPartition, end: int, *, task_epoch: int | None = None, is_source: bool = False
    ) -> None:
        """Note that a changelog holds nothing more before ``end``, as when only control records are left.

        ``is_source`` is that of :meth:`restore`.
        """

        def change(_: Any, header: TaskHeader) -> tuple[TaskHeader, None]:
            checks.require_task_epoch(self.path, header, task_epoch)
            checks.require_no_journals(self.path, header, changelog)
            reached = max(end, header.changelog.get(changelog, 0))
            header = replace(header, changelog={**header.changelog, changelog: reached})
            if is_source:
                header = replace(header, positions={**header.positions, changelog: reached})
            return header, None

        self._change(change)

    # -- steps of a change ----------------------------------------------------------------------------------------

    def _change(self, change: Callable[[Any, TaskHeader], tuple[TaskHeader, T]]) -> T:
        """Run ``change`` in a write transaction that reads the header first and writes it last."""
        with contextlib.ExitStack() as until_committed:

            def run(transaction: Any) -> T:
                header = self._load(transaction)
                if header.clean:
                    if not self._clean_lock.held:
                        self._hold_clean_lock()
                        until_committed.callback(self._clean_lock.release)
                    cleanliness.mark(self.path, clean=False)
                header, result = change(transaction, header)
                self._save(transaction, replace(header, clean=False, boot_id=host.boot_id()))
                return result

            return self._environment.write(run)

    def _load(self, transaction: Any) -> TaskHeader:
        data = transaction.get(_HEADER, db=self._meta)
        return TaskHeader() if data is None else TaskHeader.decode(data, f"the header of the state in {self.path}")

    def _save(self, transaction: Any, header: TaskHeader) -> None:
        transaction.put(_HEADER, header.encode(), db=self._meta)

    def _put(self, transaction: Any, table: Any, keys: pa.Array, values: pa.Array) -> None:
        rows.put(transaction, table, keys, values)

    def _drop_expired(self, transaction: Any, table: Any, expired: int, keys: int) -> None:
        """Remove windows that have expired by what is committed: more than come, and not too many at a time."""
        if expired != NO_TIME:
            rows.drop_below(transaction, table, over(expired), _DROPPED + 2 * keys)

    def _begin(self, transaction: Any, header: TaskHeader, leg: str, batch: BatchStamp) -> TaskHeader:
        """Make sure that a batch fits; drop what is committed, and take back what an earlier try of it did."""
        checks.require_this_batch(self.path, header, batch)
        header = self._drop_journals(transaction, header, batch.committed, batch.changelog_next)
        checks.require_next_batch(self.path, header, leg, batch)
        if header.journals and header.journals[0].tries < batch.tries:
            header = self._take_back(transaction, header)
        return header

    def _drop_journals(
        self, transaction: Any, header: TaskHeader, committed: int, changelog_next: Mapping[TopicPartition, int]
    ) -> TaskHeader:
        """Drop the journals up to ``committed`` and move the committed position over them."""
        positions, contents = dict(header.positions), dict(header.contents)
        watermarks, expired, sources = dict(header.watermarks), dict(header.expired), dict(header.sources)
        left = []
        for entry in header.journals:
            if entry.batch <= committed:
                positions.update(entry.positions_after)
                contents[entry.store] = entry.contents
                if entry.watermark != NO_TIME:
                    watermarks[entry.store], expired[entry.store] = entry.watermark, entry.expired
                sources[entry.store] = entry.sources
                journal.drop(transaction, self._journal, entry)
            else:
                left.append(entry)
        changelog = dict(header.changelog)
        for partition, offset in changelog_next.items():
            changelog[partition] = max(offset, changelog.get(partition, 0))
        return replace(
            header,
            batch=max(header.batch, committed),
            positions=positions,
            changelog=changelog,
            contents=contents,
            journals=tuple(left),
            watermarks=watermarks,
            expired=expired,
            sources={store: topics for store, topics in sources.items() if topics},
        )

    def _take_back(self, transaction: Any, header: TaskHeader) -> TaskHeader:
        """Put the old values back of whatever is journalled."""
        # Backwards, so that a key which two legs changed ends with its oldest value.
        for entry in reversed(header.journals):
            changes, _ = journal.read(transaction, self._journal, entry)
            table = self._environment.opened(_STORE_PREFIX + entry.store)
            self._put(transaction, table, changes.column(0), changes.column(1))
            journal.drop(transaction, self._journal, entry)
        return replace(header, journals=())

    def _open_tables_of_journals(self) -> None:
        """Do what cannot be done within a transaction, for what is to be taken back."""
        for entry in self.header.journals:
            self._table(entry.store)

    def _table(self, store: str) -> Any:
        return self._environment.database(_STORE_PREFIX + store)

    # -- clean close ----------------------------------------------------------------------------------------------

    def _hold_clean_lock(self) -> None:
        if not self._clean_lock.acquire(_CLEANLINESS_SECONDS):
            raise StateStoreException(
                f"{self._clean_lock.holder()} has been closing the state in {self.path} for more than "
                f"{_CLEANLINESS_SECONDS:g} s"
            )

    def _mark_clean(self) -> None:
        """Sync, and say so. A writer that comes meanwhile waits for the lock and then says dirty again."""
        with self._environment.turn:
            self._hold_clean_lock()
            try:
                # All data must be on the disk before anything that calls it clean.
                self._environment.sync()
                if not self.header.clean:
                    self._environment.write(lambda t: self._save(t, replace(self._load(t), clean=True)))
                    self._environment.sync()
                cleanliness.mark(self.path, clean=True)
            finally:
                self._clean_lock.release()


def _store_of(topic: str, application: str) -> str:
    return topic.removeprefix(f"{application}-").removesuffix("-changelog")
