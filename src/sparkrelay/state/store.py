"""One task's local state: its stores, journals and positions in one LMDB environment.

Several processes may have it open: whoever writes compares, in the same transaction, what it was sent with what
stands there, so a zombie is refused by whatever it missed. Each batch leaves a journal until it is known as
committed; with it the batch can be taken back. So state survives a SIGKILL anywhere, and is never wiped for it, as
Kafka Streams wipes its own under exactly-once (KIP-892 plans against that).

A header holds the *committed* position; what lies beyond it is exactly what the journals hold. Undoing therefore
never computes a position, and two legs that read one topic do not see each other's progress.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sparkrelay.state import checks, journal
from sparkrelay.state.after import StoreAfter
from sparkrelay.state.batch import Applied, BatchStamp, LookedUp, MergeResult, Watermark
from sparkrelay.state.header import JournalEntry, TaskHeader
from sparkrelay.state.lmdb import ranges, rows, scan
from sparkrelay.state.lmdb.running_sum import RunningSum
from sparkrelay.state.restorable import RestorableStore
from sparkrelay.state.view import Changes, StoreView, merging
from sparkrelay.state.watermarks import ENDLESS, NO_TIME, end_of, expired_with, over

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import ExitStack

    import pyarrow as pa

    from sparkrelay.state.lmdb.environment import Begun
    from sparkrelay.state.lmdb.running_sum import Change
    from sparkrelay.state.lmdb.table import Table

__all__ = ["TaskStore", "Turn"]

#: What one transaction changes: each key may touch a page, LMDB keeps those in memory and writes them anew. The pages
#: that it leaves free serve a later transaction, so with few at a time the file stays small.
_KEYS_AT_ONCE: Final = 16_384
_BYTES_AT_ONCE: Final = 64 << 20
#: Every eighth change compares some rows with their checksums; of small changes, which are frequent, every 64th.
_SCRUB_EVERY: Final = 8
_SCRUB_SMALL_EVERY: Final = 64
_SCRUBBED: Final = 512


@dataclass(frozen=True, slots=True)
class Turn:
    """A leg's share of a batch in one store, from the begin of its transaction to the end.

    Attributes:
        table: the store's.
        begun: the transaction.
        passed: the last key that a scrub has passed.
        finish: journals the changes, has them put into the table, and commits.
    """

    table: Table
    begun: Begun
    passed: bytes
    finish: Callable[[Changes, Callable[[Any], Change]], Applied]


class _Share(NamedTuple):
    """A leg's share of a batch, from the begin of its first transaction to the end of its last one.

    Attributes:
        changes: all that it does.
        parts: those changes that are not in the store yet, as many as one transaction takes each.
        entry: the journal's, as far as it has come.
        watermark: of the store before the batch.
    """

    changes: Changes
    parts: Sequence[Changes]
    entry: JournalEntry
    watermark: int

    @classmethod
    def of(
        cls, header: TaskHeader, leg: str, store: str, batch: BatchStamp, changes: Changes, *, whole: bool = False
    ) -> _Share:
        late = changes.rows_late if changes.watermark is None else changes.watermark.rows_late
        entry = JournalEntry(
            *(header.next_journal, leg, batch.number, batch.tries, store, batch.contents, dict(batch.ranges), 0),
            rows_late=late,
            complete=False,
        )
        parts = [changes] if whole else changes.parts(_KEYS_AT_ONCE, _BYTES_AT_ONCE)
        return cls(changes, parts, entry, header.watermarks.get(store, NO_TIME))

    def begun(self, header: TaskHeader) -> TaskHeader:
        """Return the header once the share has begun."""
        number = (self.entry.number + 1) & 0xFFFFFFFF
        return header._replace(journals=(*header.journals, self.entry), next_journal=number)

    def applied(self) -> Applied:
        """Return what it has done."""
        changes = self.changes
        final = changes.watermark is not None and changes.watermark.final
        span = (self.watermark, self.entry.watermark) if final else None
        return Applied(changes.emitted, changes.keys, changes.new, self.entry, span)


class TaskStore(RestorableStore):
    """The open state of one task. Made by :meth:`open`; threads of a process take turns."""

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
        return int(self._environment.read(lambda t: t.stat(table.handle))["entries"])

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

        In one transaction the stamp is checked, journals of committed batches are dropped, what an earlier try of
        the batch did is taken back, old values are read, merged and replaced, and the leg's journal is written. Many
        changes are put into the store in several transactions, of which each extends the journal.

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
            StoreFullException: the disk or the map is full; what changed is taken back by the next try.
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
            StoreFullException: the disk or the map is full; what changed is taken back by the next try.
            IncompatibleTopologyException: the store holds something else than the pipeline wants.
        """
        table = self._table(store)
        if batch.tries > 1:
            self._open_tables_of_journals()

        def begin(transaction: Any, header: TaskHeader) -> tuple[TaskHeader, _Share]:
            header = self._fitting(transaction, header, leg, store, batch)
            changes = operate(StoreView(transaction, table, header, store))
            share = _Share.of(header, leg, store, batch, changes)
            return put(transaction, share.begun(header), share)

        def go_on(transaction: Any, header: TaskHeader) -> tuple[TaskHeader, _Share]:
            checks.require_applied(self.path, header, batch.task_epoch, share.entry)
            return put(transaction, header, share)

        def put(transaction: Any, header: TaskHeader, share: _Share) -> tuple[TaskHeader, _Share]:
            part = share.parts[0]

            def put(header: TaskHeader) -> TaskHeader:
                return self._put(transaction, header, store, part.keys, part.new, part.old)

            return self._put_part(transaction, header, share, put)

        share = self._change(begin)
        while share.parts:
            share = self._change(go_on)
        return share.applied()

    def turn(self, open_: ExitStack, leg: str, store: str, batch: BatchStamp) -> Turn | None:
        """Begin a leg's share of a batch beside those of other tasks (``together``).

        Args:
            open_: undoes it at its end, unless it was finished.
            leg: as of :meth:`change_batch`.
            store: likewise.
            batch: likewise.

        Returns:
            None if it takes more than that, as after the state was closed: :meth:`change_batch` does it.

        Raises:
            UnfinishedError: likewise.
            StoreOutOfStepException: as :meth:`change_batch`; IncompatibleTopologyException likewise.
        """
        table = self._table(store)
        begun = open_.enter_context(self._environment.begun())
        with begun as transaction:
            header = self._load(transaction)
            if header.clean or batch.tries > 1:
                return None
            header = self._fitting(transaction, header, leg, store, batch)

        def finish(changes: Changes, put: Callable[[Any], Change]) -> Applied:
            share = _Share.of(header, leg, store, batch, changes, whole=True)
            with begun:
                after, share = self._put_part(
                    transaction,
                    share.begun(header),
                    share,
                    lambda before: self._counted(before, store, put(transaction)),
                )
                self._save(transaction, after)
                begun.commit()
            return share.applied()

        return Turn(table, begun, header.sums.get(store, RunningSum()).scrubbed_to, finish)

    def _fitting(self, transaction: Any, header: TaskHeader, leg: str, store: str, batch: BatchStamp) -> TaskHeader:
        """Make sure that a leg's share of a batch fits; return the header with which its turn begins."""
        header = self._begin(transaction, header, leg, batch)
        checks.require_contents(header, store, batch.contents)
        header = header.reading(batch.topics)
        checks.require_positions(self.path, header, leg, batch)
        self._require_rows(transaction, header, store)
        return header

    def _put_part(
        self, transaction: Any, header: TaskHeader, share: _Share, put: Callable[[TaskHeader], TaskHeader]
    ) -> tuple[TaskHeader, _Share]:
        """Journal the next part of a share's changes, and have it ``put`` into the store; the last one completes it."""
        part, *parts = share.parts
        entry, table = share.entry, self._opened(share.entry.store)
        undo = part.undo(transaction, table)
        pieces = journal.write(transaction, self._journal, entry.number, undo, part.beside, pieces=entry.pieces)
        entry = entry._replace(pieces=pieces, keys=entry.keys + len(part.keys), complete=not parts)
        header = put(header)
        if not parts:
            header, entry = self._complete(transaction, header, entry, share)
        journals = tuple(entry if other.number == entry.number else other for other in header.journals)
        return header._replace(journals=journals), share._replace(entry=entry, parts=parts)

    def _complete(
        self, transaction: Any, header: TaskHeader, entry: JournalEntry, share: _Share
    ) -> tuple[TaskHeader, JournalEntry]:
        """Remove what has expired, compare some rows, and note event times, once all changes are in the store."""
        store, table = entry.store, self._opened(entry.store)
        expired = header.expired.get(store, NO_TIME)
        header = self._drop_expired(transaction, header, store, expired, entry.keys)
        if entry.number % (_SCRUB_SMALL_EVERY if entry.keys < _SCRUBBED else _SCRUB_EVERY) == 0:
            header = self._scrub(transaction, header, store, _SCRUBBED + entry.keys // 8)
        if (watermark := share.changes.watermark) is None:
            return header, entry
        now, last = max(watermark.ms, share.watermark), ranges.last_key(transaction, table, ENDLESS)
        following = ranges.first_key(transaction, table, over(now))
        return header, entry._replace(
            watermark=now,
            last_end=NO_TIME if last is None else end_of(last),
            next_end=NO_TIME if following is None or following >= ENDLESS else end_of(following),
            expired=expired_with(now, watermark.retention_ms, expired),
            sources=watermark.sources,
            sources_read=watermark.sources_read,
        )

    def after(self, applied: Applied, *, task_epoch: int) -> StoreAfter:
        """Return a store as a leg's share of a batch has left it.

        Args:
            applied: what :meth:`change_batch` has returned.
            task_epoch: of the batch.
        """

        def check(transaction: Any) -> None:
            checks.require_applied(self.path, self._load(transaction), task_epoch, applied.entry)

        table = self._table(applied.entry.store)
        return StoreAfter(self._environment, table, self._journal, applied, check)

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
        wanted = (leg, number, tries, True)
        return next((e for e in self.header.journals if (e.leg, e.batch, e.tries, e.complete) == wanted), None)

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
            contents: as of :meth:`look`.
            task_epoch: likewise.
            number: likewise.
            tries: likewise.

        Raises:
            StoreOutOfStepException: the store was taken over under another task epoch.
            IncompatibleTopologyException: the store holds something else than the pipeline wants.
        """
        wanted = rows.as_binary(keys)
        return self.look(
            store, lambda view: view.get(wanted), contents=contents, task_epoch=task_epoch, number=number, tries=tries
        )

    def look(
        self,
        store: str,
        find: Callable[[StoreView], pa.Array],
        *,
        contents: str,
        task_epoch: int | None = None,
        number: int = 0,
        tries: int = 0,
    ) -> LookedUp:
        """Return what is found in a store, and what the batch under way has done to it, all of one moment.

        Args:
            store: the store's name.
            find: reads the store.
            contents: what the pipeline means the store to hold, in words.
            task_epoch: of the batch; None where the reader is in no batch of the store's.
            number: of the batch, likewise 0.
            tries: of the attempt at it, likewise 0.

        Raises:
            StoreOutOfStepException: the store was taken over under another task epoch.
            IncompatibleTopologyException: the store holds something else than the pipeline wants.
        """
        table = self._table(store)

        def read(transaction: Any) -> LookedUp:
            header = self._load(transaction)
            checks.require_task_epoch(self.path, header, task_epoch)
            checks.require_contents(header, store, contents)
            self._require_rows(transaction, header, store)
            values = find(StoreView(transaction, table, header, store))
            for entry in header.journals:
                if (entry.store, entry.batch, entry.tries) == (store, number, tries):
                    return LookedUp(values, *journal.read(transaction, self._journal, entry))
            return LookedUp(values)

        return self._environment.read(read)

    def keys_beginning(
        self, store: str, beginnings: Iterable[bytes], *, contents: str, task_epoch: int | None = None
    ) -> pa.Array:
        """Return the keys of a store that begin with one of those bytes.

        Args:
            store: the store's name.
            beginnings: distinct ones, none of which begins with another.
            contents: what the pipeline means the store to hold, in words.
            task_epoch: of the batch under way; None where the reader is in none.

        Raises:
            StoreOutOfStepException: the store was taken over under another task epoch.
            IncompatibleTopologyException: the store holds something else than the pipeline wants.
        """
        table = self._table(store)

        def read(transaction: Any) -> pa.Array:
            header = self._load(transaction)
            checks.require_task_epoch(self.path, header, task_epoch)
            checks.require_contents(header, store, contents)
            self._require_rows(transaction, header, store)
            return ranges.keys_beginning(transaction, table, beginnings)

        return self._environment.read(read)

    def _begin(self, transaction: Any, header: TaskHeader, leg: str, batch: BatchStamp) -> TaskHeader:
        """Make sure that a batch fits; drop what is committed, and take back what an earlier try of it did."""
        checks.require_this_batch(self.path, header, batch)
        header = self._drop_journals(transaction, header, batch.committed, batch.changelog_next)
        checks.require_next_batch(self.path, header, leg, batch)
        if header.journals and header.journals[0].tries < batch.tries:
            header = self._take_back(transaction, header)
        return header
