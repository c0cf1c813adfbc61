"""One task's local state: its stores, journals and positions in one LMDB environment.

Several processes may have it open. A writer compares its batch with the header in the transaction that changes it, so a
zombie is rejected by whatever it missed. Each batch leaves a journal until it is known to be committed, by which it can
be undone. State therefore survives a SIGKILL at any point; Kafka Streams wipes its own under exactly-once (KIP-892).

The header holds the *committed* positions, and the journals hold exactly what lies beyond. So undoing never computes a
position, and two legs that read one topic do not see each other's progress.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sparkrelay.state import journal, preconditions
from sparkrelay.state.after import StoreAfter
from sparkrelay.state.batch import Applied, BatchStamp, LookedUp
from sparkrelay.state.header import JournalEntry, TaskHeader
from sparkrelay.state.lmdb import rows, scan
from sparkrelay.state.lmdb.ranges import TableView
from sparkrelay.state.lmdb.running_sum import RunningSum
from sparkrelay.state.restorable import RestorableStore
from sparkrelay.state.view import Changes, StoreView
from sparkrelay.state.window_keys import ENDLESS, NO_TIME, end_of, expired_with, over

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import ExitStack

    import pyarrow as pa

    from sparkrelay.state.lmdb.environment import Begun
    from sparkrelay.state.lmdb.running_sum import Change
    from sparkrelay.state.lmdb.table import Table

#: Bounds on one transaction: each key may touch a page, which LMDB keeps in memory and copies. A later transaction
#: reuses the pages that become free, so small transactions keep the file small.
_KEYS_AT_ONCE: Final = 16_384
_BYTES_AT_ONCE: Final = 64 << 20
#: Every eighth change scrubs some rows; of small changes, which are frequent, every 64th.
_SCRUB_EVERY: Final = 8
_SCRUB_SMALL_EVERY: Final = 64
_SCRUBBED: Final = 512


@dataclass(frozen=True, slots=True)
class Turn:
    """A leg's share of a batch in one store, in a transaction that is open beside others.

    Attributes:
        table: the store's.
        begun: the transaction.
        passed: the last key that a scrub has passed.
        finish: journals the changes, calls its second argument to write them, and commits.
    """

    table: Table
    begun: Begun
    passed: bytes
    finish: Callable[[Changes, Callable[[Any], Change]], Applied]


class _Share(NamedTuple):
    """A leg's share of a batch, which may take several transactions.

    Attributes:
        changes: all its changes.
        parts: the changes that are still to be written, one part per transaction.
        entry: the journal's, as far as it is written.
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
        entry = JournalEntry(
            number=header.next_journal,
            leg=leg,
            batch=batch.number,
            tries=batch.tries,
            store=store,
            contents=batch.contents,
            ranges=dict(batch.ranges),
            keys=0,
            rows_late=changes.rows_late if changes.watermark is None else changes.watermark.rows_late,
            complete=False,
        )
        parts = [changes] if whole else changes.parts(_KEYS_AT_ONCE, _BYTES_AT_ONCE)
        return cls(changes, parts, entry, header.watermarks.get(store, NO_TIME))

    def begun(self, header: TaskHeader) -> TaskHeader:
        """Return the header with the share begun."""
        number = (self.entry.number + 1) & 0xFFFFFFFF
        return header._replace(journals=(*header.journals, self.entry), next_journal=number)

    def applied(self) -> Applied:
        """Return its result."""
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

    def scan(self, store: str, *, start: bytes | None = None, stop: bytes | None = None) -> Iterator[pa.RecordBatch]:
        """Yield ``key, value`` of the keys in ``[start, stop)``, in the order of bytes.

        Each batch is consistent; the store may change between two. Long keys with the same first 479 bytes come in no
        order.
        """
        return scan.scan(self._environment, self._table(store), start, stop)

    def rows(self, store: str) -> int:
        """Return the number of keys of a store."""
        table = self._table(store)
        return int(self._environment.read(lambda t: t.stat(table.handle))["entries"])

    # -- batches --------------------------------------------------------------------------------------------------

    def change_batch(
        self, leg: str, store: str, *, batch: BatchStamp, operate: Callable[[StoreView], Changes]
    ) -> Applied:
        """Let an operator apply a leg's share of a batch to a store.

        One transaction checks the stamp, drops journals of committed batches, undoes an earlier attempt at the batch,
        runs the operator, writes the leg's journal and changes the store. Many changes take several transactions, each
        of which extends the journal.

        An earlier attempt never counts as the batch: to a worker, a failed Spark task looks like the end of its input,
        so that attempt may have applied a part.

        Args:
            leg: the leg's id.
            store: the store's name; other legs of the batch may change it too.
            batch: the driver's stamp.
            operate: reads the store and returns the changes. Called again if the map had to grow.

        Raises:
            StoreOutOfStepException: the store is not where the batch expects it; nothing changed.
            StoreFullException: the disk or the map is full; the next attempt undoes what changed.
            IncompatibleTopologyException: the store's contents are not those of the pipeline.
        """
        table = self._table(store)
        if batch.tries > 1:
            self._open_tables_of_journals()

        def begin(transaction: Any, header: TaskHeader) -> tuple[TaskHeader, _Share]:
            header = self._fitting(transaction, header, leg, store, batch)
            changes = operate(StoreView(transaction, table, header, store))
            share = _Share.of(header, leg, store, batch, changes)
            return self._put_part(transaction, share.begun(header), share)

        def resume(transaction: Any, header: TaskHeader) -> tuple[TaskHeader, _Share]:
            preconditions.require_applied(self.path, header, batch.task_epoch, share.entry)
            return self._put_part(transaction, header, share)

        share = self._change(begin)
        while share.parts:
            share = self._change(resume)
        return share.applied()

    def turn(self, open_: ExitStack, leg: str, store: str, batch: BatchStamp) -> Turn | None:
        """Begin a leg's share of a batch beside those of other tasks (``together``).

        ``open_`` undoes it at its end unless it was finished. Raises what :meth:`change_batch` raises, and
        UnfinishedError.

        Returns:
            None in cases that need :meth:`change_batch`, as after a clean close.
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
                after, share = self._put_part(transaction, share.begun(header), share, put)
                self._save(transaction, after)
                begun.commit()
            return share.applied()

        return Turn(table, begun, header.sums.get(store, RunningSum()).scrubbed_to, finish)

    def _fitting(self, transaction: Any, header: TaskHeader, leg: str, store: str, batch: BatchStamp) -> TaskHeader:
        """Require that a leg's share of a batch fits; return the header at its turn."""
        header = self._begin(transaction, header, leg, batch)
        preconditions.require_contents(header, store, batch.contents)
        header = header.reading(batch.topics)
        preconditions.require_positions(self.path, header, leg, batch)
        self._require_rows(transaction, header, store)
        return header

    def _put_part(
        self, transaction: Any, header: TaskHeader, share: _Share, put: Callable[[Any], Change] | None = None
    ) -> tuple[TaskHeader, _Share]:
        """Journal and write (by ``put`` if given) the next part of a share's changes; the last part completes it."""
        part, *parts = share.parts
        entry, table = share.entry, self._opened(share.entry.store)
        undo = part.undo(transaction, table)
        pieces = journal.write(transaction, self._journal, entry.number, undo, part.beside, pieces=entry.pieces)
        entry = entry._replace(pieces=pieces, keys=entry.keys + len(part.keys), complete=not parts)
        if put is None:
            header = self._put(transaction, header, entry.store, part.keys, part.new, part.old)
        else:
            header = self._counted(header, entry.store, put(transaction))
        if not parts:
            header, entry = self._complete(transaction, header, entry, share)
        journals = tuple(entry if other.number == entry.number else other for other in header.journals)
        return header._replace(journals=journals), share._replace(entry=entry, parts=parts)

    def _complete(
        self, transaction: Any, header: TaskHeader, entry: JournalEntry, share: _Share
    ) -> tuple[TaskHeader, JournalEntry]:
        """Remove expired windows, scrub some rows and record event times, once all changes are in the store."""
        store, table = entry.store, TableView(transaction, self._opened(entry.store))
        expired = header.expired.get(store, NO_TIME)
        header = self._drop_expired(transaction, header, store, expired, entry.keys)
        if entry.number % (_SCRUB_SMALL_EVERY if entry.keys < _SCRUBBED else _SCRUB_EVERY) == 0:
            header = self._scrub(transaction, header, store, _SCRUBBED + entry.keys // 8)
        if (watermark := share.changes.watermark) is None:
            return header, entry
        now, last = max(watermark.ms, share.watermark), table.last_key(ENDLESS)
        following = table.first_key(over(now))
        return header, entry._replace(
            watermark=now,
            last_end=NO_TIME if last is None else end_of(last),
            next_end=NO_TIME if following is None or following >= ENDLESS else end_of(following),
            expired=expired_with(now, watermark.retention_ms, expired),
            sources=watermark.sources,
            sources_read=watermark.sources_read,
        )

    def after(self, applied: Applied, *, task_epoch: int) -> StoreAfter:
        """Return the store after a leg's share of a batch, the result of :meth:`change_batch`."""

        def check(transaction: Any) -> None:
            preconditions.require_applied(self.path, self._load(transaction), task_epoch, applied.entry)

        table = self._table(applied.entry.store)
        return StoreAfter(self._environment, table, self._journal, applied, check)

    def header_before(self, batch: BatchStamp) -> TaskHeader:
        """Return the header, with the watermarks before a batch as those after ``batch.committed``.

        Raises:
            StoreOutOfStepException: the store was taken over under another task epoch, or is beyond the batch.
        """
        header = self.header
        preconditions.require_this_batch(self.path, header, batch)
        return header

    def journal_of(self, leg: str, *, number: int, tries: int) -> JournalEntry | None:
        """Return the journal entry of a leg's share of a batch; None if that attempt has left none."""
        wanted = (leg, number, tries, True)
        return next((e for e in self.header.journals if (e.leg, e.batch, e.tries, e.complete) == wanted), None)

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
        """Return values found in a store, and the changes by the batch under way, consistently.

        Args:
            store: the store's name.
            find: reads the store.
            contents: the description of the pipeline's store.
            task_epoch: of the batch; None for a reader without a batch of the store.
            number: of the batch, 0 likewise.
            tries: the attempt at it, 0 likewise.

        Raises:
            IncompatibleTopologyException: the store's contents are not those of the pipeline.
        """
        table = self._table(store)

        def read(transaction: Any) -> LookedUp:
            header = self._load(transaction)
            preconditions.require_task_epoch(self.path, header, task_epoch)
            preconditions.require_contents(header, store, contents)
            self._require_rows(transaction, header, store)
            values = find(StoreView(transaction, table, header, store))
            for entry in header.journals:
                if (entry.store, entry.batch, entry.tries) == (store, number, tries):
                    return LookedUp(values, *journal.read(transaction, self._journal, entry))
            return LookedUp(values)

        return self._environment.read(read)

    def _begin(self, transaction: Any, header: TaskHeader, leg: str, batch: BatchStamp) -> TaskHeader:
        """Require that a batch fits; drop committed journals, and undo an earlier attempt at the batch."""
        preconditions.require_this_batch(self.path, header, batch)
        header = self._drop_journals(transaction, header, batch.committed, batch.changelog_next)
        preconditions.require_next_batch(self.path, header, leg, batch)
        if header.journals and header.journals[0].tries < batch.tries:
            header = self._take_back(transaction, header)
        return header
