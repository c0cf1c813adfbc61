"""Ownership of a task's state, and restoring it from its changelogs: all that precedes batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sparkrelay.errors import StoreCorruptedException, StoreOutOfStepException
from sparkrelay.state import preconditions
from sparkrelay.state.lmdb import rows
from sparkrelay.state.lmdb.running_sum import RunningSum
from sparkrelay.state.lmdb.store_file import StoreFile, without
from sparkrelay.state.window_keys import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

    from sparkrelay.state.changelog import Marker
    from sparkrelay.state.header import TaskHeader
    from sparkrelay.types import TopicPartition

#: Rows scrubbed with each restore slice, at least.
_SCRUBBED: Final = 64
#: Rows scrubbed in one transaction, of a store that was not closed.
_READ_AT_ONCE: Final = 50_000


class RestorableStore(StoreFile):
    """State that can be taken over, claimed, and restored.

    Methods with ``task_epoch`` raise StoreOutOfStepException if the store was taken over under another one.
    """

    # -- owners ---------------------------------------------------------------------------------------------------

    def take_over(self, task_epoch: int) -> list[tuple[str, int]]:
        """Admit only batches of this task epoch, and undo batches that are not known to be committed.

        Once per task epoch: a late command, whose batches have begun, undoes nothing. 0 is the epoch of standbys, which
        have no batches.

        Task epochs are only compared for equality: they come from producer ids, which a cluster does not assign in
        order. A late one costs the owner another take-over, but no state.

        Returns:
            The leg and number of each undone batch, last one first.
        """

        def change(transaction: Any, header: TaskHeader) -> tuple[TaskHeader, list[tuple[str, int]]]:
            if header.task_epoch == task_epoch != 0:
                return header, []
            undone = [(entry.leg, entry.batch) for entry in reversed(header.journals)]
            return self._take_back(transaction, header)._replace(task_epoch=task_epoch), undone

        self._open_tables_of_journals()
        return self._change(change)

    def take_over_at(self, task_epoch: int, committed: Mapping[TopicPartition, int | None]) -> bool:
        """Take over stores without changelog; afterwards they are at the group's offsets, or empty.

        A batch that ends at these offsets is committed, and kept: nothing could restore it.

        Args:
            task_epoch: the new owner's.
            committed: the group's offset of each input partition of the stores, None where there is none.

        Returns:
            Whether the stores were elsewhere: the task ran on another host, was reset, or is new here.
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
        """Drop the journals up to the committed ``batch`` if no next batch will do so."""

        def change(transaction: Any, header: TaskHeader) -> tuple[TaskHeader, None]:
            return self._drop_journals(transaction, header, batch, changelog_next), None

        self._change(change, task_epoch=task_epoch)

    def claim(self, application: str, topics: Mapping[str, str] | None = None, width: int | None = None) -> None:
        """Require that the state belongs to this application and its present changelogs, and record them.

        Args:
            application: the application.id.
            topics: changelog topic -> its id, as far as known.
            width: for stores without changelog, the number of tasks that share them.

        Raises:
            StoreCorruptedException: the state was copied from another application.
            IncompatibleTopologyException: the number of tasks has changed.
            StateStoreException: a changelog was re-created. After a reset the topic is right, after an accident the
                state; which one it is cannot be known here.
        """

        def change(_: Any, header: TaskHeader) -> tuple[TaskHeader, None]:
            noted = preconditions.claimed_topics(self.path, header, application, topics or {}, width)
            return header._replace(application=application, topics={**header.topics, **noted}), None

        self._change(change)

    def opened_by(self, instance: str) -> bool:
        """Record the instance that has the state; stores that another one did not close must be read through.

        A process that dies of a damaged page and one that is killed cannot be told apart afterwards.

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
        """Verify all rows of stores that an earlier instance did not close.

        Args:
            spent: returns whether time is up; the next call continues.

        Returns:
            Whether all are verified.

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
        """Empty the stores that the task no longer has; return their changelogs. No batch may be unfinished.

        Args:
            changelogs: store -> changelog partition, of all present stores of the task.
            task_epoch: the owner's.

        Raises:
            StoreCorruptedException: the task has none of the stores here: sub-topologies were renumbered.
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
        # `contents` lacks stores that were restored without a marker.
        named = {_store_of(partition.topic, self.header.application) for partition in foreign}
        stores = ({*self.header.contents} | named) - {*changelogs} if foreign else set()
        self._open_tables(stores)

        def change(transaction: Any, header: TaskHeader) -> tuple[TaskHeader, list[TopicPartition]]:
            for store in stores:
                header = self._empty(transaction, header, store)
            return header._replace(
                changelog={p: offset for p, offset in header.changelog.items() if p in wanted},
                topics=without(header.topics, {p.topic for p in foreign}),
                contents=without(header.contents, stores),
                watermarks=without(header.watermarks, stores),
                expired=without(header.expired, stores),
                sources=without(header.sources, stores),
            ), foreign

        return self._change(change, task_epoch=task_epoch) if foreign else []

    def require_source(
        self, store: str, changelog: TopicPartition, end: int | None, *, contents: str, task_epoch: int | None = None
    ) -> int | None:
        """Empty a table whose changelog is an input of its task, unless it holds a prefix of that input.

        It does not if it was restored from another changelog, if the group's offset was reset to before its position
        (the topic is read again from there), or if it has other columns.

        Args:
            store: the table's.
            changelog: the input partition.
            end: the group's offset, None if unknown.
            contents: the description of the pipeline's store.
            task_epoch: the owner's.

        Returns:
            The table's position if it was beyond ``end``, else None.
        """
        self._open_tables([store])

        def change(transaction: Any, header: TaskHeader) -> tuple[TaskHeader, int | None]:
            known = header.changelog.get(changelog)
            beyond = known is not None and end is not None and known > end
            if known is not None and not beyond and header.contents.get(store, contents) == contents:
                return header, None
            header = self._empty(transaction, header, store)
            return header._replace(
                changelog=without(header.changelog, {changelog}),
                positions=without(header.positions, {changelog}),
                contents=without(header.contents, {store}),
            ), known if beyond else None

        return self._change(change, task_epoch=task_epoch)

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
        """Apply a slice of a changelog in one transaction; null values delete, the last of equal keys counts.

        The batch and the positions follow the slice's last marker if it is ahead. If the changelog is also an input
        (``is_source``), the restored offset is also the position.

        Raises:
            StoreOutOfStepException: a batch is unfinished (undo it first), the store is beyond this slice, or it was
                taken over under another task epoch.
        """
        self._open_tables([store])
        ordered, new = rows.latest(rows.as_binary(keys), rows.as_binary(values))

        def change(transaction: Any, header: TaskHeader) -> tuple[TaskHeader, None]:
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
                expired = header.expired.get(store, NO_TIME)
                header = self._drop_expired(transaction, header, store, expired, len(ordered))
            header = self._scrub(transaction, header, store, _SCRUBBED + len(ordered) // 64)
            return _at(header, changelog, next_offset, is_source=is_source), None

        self._change(change, task_epoch=task_epoch, restoring=changelog)

    def restore_reached(
        self, changelog: TopicPartition, end: int, *, task_epoch: int | None = None, is_source: bool = False
    ) -> None:
        """Record that a changelog has nothing more before ``end``, as when only control records are left."""

        def change(_: Any, header: TaskHeader) -> tuple[TaskHeader, None]:
            return _at(header, changelog, max(end, header.changelog.get(changelog, 0)), is_source=is_source), None

        self._change(change, task_epoch=task_epoch, restoring=changelog)

    def restore_anew(
        self,
        store: str,
        changelog: TopicPartition,
        first: int,
        *,
        task_epoch: int | None = None,
        is_source: bool = False,
    ) -> bool:
        """Empty a store whose position is before the beginning of its changelog, ``first``, and move it there.

        Tombstones may be among the records in between, which are gone: the deleted rows would stay for ever. Times that
        never go back, such as the watermark, are kept.

        Returns:
            Whether the store had rows.

        Raises:
            StoreOutOfStepException: the store was taken over under another task epoch, or a batch is unfinished.
        """
        self._open_tables([store])

        def change(transaction: Any, header: TaskHeader) -> tuple[TaskHeader, bool]:
            if header.changelog.get(changelog, 0) >= first:
                return header, False
            held = header.sums.get(store, RunningSum()).rows > 0
            header = self._empty(transaction, header, store)
            return _at(header, changelog, first, is_source=is_source), held

        return self._change(change, task_epoch=task_epoch, restoring=changelog)


def _at(header: TaskHeader, changelog: TopicPartition, offset: int, *, is_source: bool) -> TaskHeader:
    """Return the header with a changelog restored to an offset, which for a source is also the position."""
    header = header._replace(changelog={**header.changelog, changelog: offset})
    return header._replace(positions={**header.positions, changelog: offset}) if is_source else header


def _store_of(topic: str, application: str) -> str:
    return topic.removeprefix(f"{application}-").removesuffix("-changelog")
