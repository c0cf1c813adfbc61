"""Whose a task's state is, and how it follows its changelogs: what an owner or a standby does before any batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sparkrelay.errors import (
    StoreCorruptedException,
    StoreOutOfStepException,
)
from sparkrelay.state import checks
from sparkrelay.state.lmdb import rows
from sparkrelay.state.lmdb.running_sum import RunningSum
from sparkrelay.state.lmdb.store_file import StoreFile
from sparkrelay.state.watermarks import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

    from sparkrelay.state.changelog import Marker
    from sparkrelay.state.header import TaskHeader
    from sparkrelay.types import TopicPartition

__all__ = ["RestorableStore"]

#: With each slice so many rows at the least are compared with what was written.
_SCRUBBED: Final = 64
#: And of a store that was not closed, in one transaction.
_READ_AT_ONCE: Final = 50_000


class RestorableStore(StoreFile):
    """State that is taken over, claimed, and brought forward by changelogs."""

    # -- owners ---------------------------------------------------------------------------------------------------

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
            return self._take_back(transaction, header)._replace(task_epoch=task_epoch), undone

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
            complete = all(entry.complete for entry in header.journals)
            if after and complete and all(committed.get(p) == offset for p, offset in after.items()):
                header = self._drop_journals(transaction, header, header.journals[-1].batch, {})
            header = self._take_back(transaction, header)._replace(task_epoch=task_epoch)
            if {p: header.positions.get(p) for p in committed} == committed:
                return header, False
            for store in stores:
                header = self._empty(transaction, header, store)
            return header._replace(positions={}, contents={}, watermarks={}, expired={}, sources={}), True

        held = self.header
        stores = sorted({*held.contents, *(entry.store for entry in held.journals)})
        self._open_tables(stores)
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
            return header._replace(application=application, topics={**header.topics, **noted}), None

        self._change(change)

    def opened_by(self, instance: str) -> bool:
        """Note which running instance has the state; what another one did not close is to be read through.

        A process that dies by a damaged page leaves its state as one that is killed does, and nothing tells them apart.

        Returns:
            Whether another instance did not close it.
        """

        def change(_: Any, header: TaskHeader) -> tuple[TaskHeader, bool]:
            if header.clean or header.instance == instance:
                return header._replace(instance=instance), False
            sums = {store: known.from_the_first() for store, known in header.sums.items()}
            return header._replace(instance=instance, sums=sums, suspect=frozenset(sums)), bool(sums)

        return self.header.instance != instance and self._change(change)

    def read_through(self, spent: Callable[[], bool]) -> bool:
        """Compare all rows with what was written, of stores that an instance before did not close.

        Args:
            spent: whether no time is left; the next call goes on.

        Returns:
            Whether nothing is left to be read.

        Raises:
            StoreCorruptedException: a row is not what was written, or is missing.
        """
        suspect = sorted(self.header.suspect)
        self._open_tables(suspect)
        for store in suspect:

            def change(transaction: Any, header: TaskHeader, store: str = store) -> tuple[TaskHeader, None]:
                self._require_rows(transaction, header, store)
                return self._scrub(transaction, header, store, _READ_AT_ONCE), None

            while store in self.header.suspect:
                if spent():
                    return False
                self._change(change)
        return True

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
        self._open_tables(stores)

        def change(transaction: Any, header: TaskHeader) -> tuple[TaskHeader, list[TopicPartition]]:
            checks.require_task_epoch(self.path, header, task_epoch)
            for store in stores:
                header = self._empty(transaction, header, store)
            return header._replace(
                changelog={p: offset for p, offset in header.changelog.items() if p in wanted},
                topics={t: id_ for t, id_ in header.topics.items() if t not in {p.topic for p in foreign}},
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
        self._open_tables([store])

        def change(transaction: Any, header: TaskHeader) -> tuple[TaskHeader, int | None]:
            checks.require_task_epoch(self.path, header, task_epoch)
            known = header.changelog.get(changelog)
            beyond = known is not None and end is not None and known > end
            if known is not None and not beyond and header.contents.get(store, contents) == contents:
                return header, None
            header = self._empty(transaction, header, store)
            return header._replace(
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
        self._open_tables([store])
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
            self._require_rows(transaction, header, store)
            header = self._put(transaction, header, store, ordered, new)
            if marker is not None:
                header = header.following(store, marker)
                header = self._drop_expired(
                    transaction, header, store, header.expired.get(store, NO_TIME), len(ordered)
                )
            header = self._scrub(transaction, header, store, _SCRUBBED + len(ordered) // 64)
            return _at(header, changelog, next_offset, is_source=is_source), None

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
            return _at(header, changelog, max(end, header.changelog.get(changelog, 0)), is_source=is_source), None

        self._change(change)

    def restore_anew(
        self,
        store: str,
        changelog: TopicPartition,
        first: int,
        *,
        task_epoch: int | None = None,
        is_source: bool = False,
    ) -> bool:
        """Empty a store whose changelog begins behind what the store has seen of it; note that beginning.

        What was deleted in between has its tombstones among the records that are gone: it would stay for ever. Times
        that never go back, such as the watermark, are kept.

        Args:
            store: the store's name.
            changelog: of the store.
            first: where the changelog begins.
            task_epoch: of the owner that this is for.
            is_source: that of :meth:`restore`.

        Returns:
            Whether there was anything to empty.

        Raises:
            StoreOutOfStepException: it comes late, or a batch is unfinished.
        """
        self._open_tables([store])

        def change(transaction: Any, header: TaskHeader) -> tuple[TaskHeader, bool]:
            checks.require_task_epoch(self.path, header, task_epoch)
            checks.require_no_journals(self.path, header, changelog)
            if header.changelog.get(changelog, 0) >= first:
                return header, False
            held = header.sums.get(store, RunningSum()).rows > 0
            header = self._empty(transaction, header, store)
            return _at(header, changelog, first, is_source=is_source), held

        return self._change(change)


def _at(header: TaskHeader, changelog: TopicPartition, offset: int, *, is_source: bool) -> TaskHeader:
    """Return the header with a changelog followed up to an offset; of a source that is what the state has seen."""
    header = header._replace(changelog={**header.changelog, changelog: offset})
    return header._replace(positions={**header.positions, changelog: offset}) if is_source else header


def _store_of(topic: str, application: str) -> str:
    return topic.removeprefix(f"{application}-").removesuffix("-changelog")
