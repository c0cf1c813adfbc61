"""Checks of a task's store: batches and commands must fit its header, and the state must be the task's.

Pure: each check compares its arguments with the header, in the transaction that reads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparkrelay.errors import (
    IncompatibleTopologyException,
    StateStoreException,
    StoreCorruptedException,
    StoreOutOfStepException,
)
from sparkrelay.state.batch import SPREAD_BY
from sparkrelay.state.changed_contents import changed_contents

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from sparkrelay.state.batch import BatchStamp
    from sparkrelay.state.header import JournalEntry, TaskHeader
    from sparkrelay.types import TopicPartition

#: A key beside the ids of changelog topics in the header: the number of tasks that share stores without changelog.
_WIDTH: Final = "number of tasks"


def claimed_topics(
    path: Path, header: TaskHeader, application: str, topics: Mapping[str, str], width: int | None
) -> dict[str, str]:
    """Return the topics that a claim records; see :meth:`RestorableStore.claim`."""
    if header.application not in {"", application}:
        raise StoreCorruptedException(
            f"the state in {path} belongs to application.id {header.application!r}, not {application!r}"
        )
    for topic, id_ in topics.items():
        known = header.topics.get(topic, id_)
        if known != id_:
            raise StateStoreException(
                f"task {path.name}: the state in {path} was made with changelog {topic!r} of id "
                f"{known}, but that topic was deleted and created again since (id {id_}). If the application was "
                f"reset, remove {path} and start again. Otherwise: "
                + lost_changelog_remedy(
                    application, f"{path}, and on each host the state of other tasks with this changelog"
                )
            )
    made_with = dict(topics)
    if width is not None:
        known = header.topics.get(_WIDTH, str(width))
        if known != str(width):
            raise IncompatibleTopologyException(
                f"task {path.name}: the stores without changelog in {path} are spread over {known} "
                f"tasks, but the source topic now needs {width}: keys would move to other tasks than "
                f"their state. Start the application over: sparkrelay reset --application-id {application} ..."
            )
        made_with[_WIDTH] = known
    return made_with


def lost_changelog_remedy(application: str, local_state: str, topics: Collection[str] = ()) -> str:
    """Return the operator's options where a changelog no longer has the rows of its store.

    Args:
        application: its id.
        local_state: the directories to remove first.
        topics: inputs of the store's tasks, where known.
    """
    accepts = "; ".join(
        f"sparkrelay offsets set --application-id {application} --topic {topic} --to current ..."
        for topic in sorted(topics) or ["TOPIC"]
    )
    return (
        "Stop all instances. To read the source topics again from their beginning: sparkrelay reset --application-id "
        f"{application} ... To continue at the group's offsets with an empty store: first remove {local_state}; "
        f"then{'' if topics else ', for each topic that the task reads'}: {accepts}"
    )


def require_task_epoch(path: Path, header: TaskHeader, task_epoch: int | None) -> None:
    """Reject a command of another task epoch than the store's; None matches any."""
    if task_epoch is not None and task_epoch != header.task_epoch:
        raise _out_of_step(
            path,
            f"a command of task epoch {task_epoch} comes late: the store was taken over under {header.task_epoch}",
        )


def require_this_batch(path: Path, header: TaskHeader, batch: BatchStamp) -> None:
    """Reject a batch of another task epoch, or one that lacks a batch committed here."""
    if batch.task_epoch != header.task_epoch:
        raise _out_of_step(
            path,
            f"batch {batch.number} was sent under task epoch {batch.task_epoch}, the store was taken over under "
            f"{header.task_epoch}",
        )
    if batch.committed < header.batch:
        raise _out_of_step(
            path,
            f"batch {batch.number} was sent with {batch.committed} as the last committed one, the store knows "
            f"{header.batch}",
        )


def require_next_batch(path: Path, header: TaskHeader, leg: str, batch: BatchStamp) -> None:
    """Reject a batch while another one is unfinished, an attempt after a later one, and a repeated leg."""
    if batch.number <= batch.committed:
        raise _out_of_step(path, f"batch {batch.number} was sent although {batch.committed} is committed")
    for entry in header.journals:
        if entry.batch != batch.number:
            raise _out_of_step(
                path,
                f"batch {batch.number} was sent after {batch.committed}, but the store holds batch {entry.batch} "
                f"of leg {entry.leg!r} unfinished",
            )
        if entry.tries > batch.tries or (entry.tries == batch.tries and entry.leg == leg):
            raise _out_of_step(
                path,
                f"batch {batch.number} of leg {leg!r} was sent as try {batch.tries}, but try {entry.tries} of leg "
                f"{entry.leg!r} is in",
            )


def require_applied(path: Path, header: TaskHeader, task_epoch: int, entry: JournalEntry) -> None:
    """Reject reading the effect of a leg's share of a batch after it was undone."""
    require_task_epoch(path, header, task_epoch)
    wanted = (entry.number, entry.leg, entry.batch, entry.tries)
    if wanted not in {(other.number, other.leg, other.batch, other.tries) for other in header.journals}:
        raise _out_of_step(path, f"batch {entry.batch} of leg {entry.leg!r}, try {entry.tries}, was taken back")


def require_contents(header: TaskHeader, store: str, wanted: str) -> None:
    """Reject a pipeline that describes other contents of the store."""
    beside = {entry.store: entry.contents for entry in header.journals}
    held = {**header.contents, **beside}.get(store, wanted)
    unspread, said, _ = wanted.rpartition(SPREAD_BY)
    if held != wanted and not (said and held == unspread):
        raise IncompatibleTopologyException(
            f"store {store!r} {changed_contents(held, wanted)}: one cannot be read as the other. Give the store a new "
            'name, such as agg(..., name="..."), which starts it empty from here on; or start the application over, '
            "sparkrelay reset; or undo the change"
        )


def require_positions(path: Path, header: TaskHeader, leg: str, batch: BatchStamp) -> None:
    """Reject a batch that does not begin at the store's positions."""
    starts = {partition: start for partition, (start, _) in batch.ranges.items()}
    for partition, before in [*batch.positions_before.items(), *starts.items()]:
        known = header.positions.get(partition, before)
        if known not in (before, batch.skipped.get(partition)):
            raise _out_of_step(
                path,
                f"batch {batch.number} of leg {leg!r} was sent for {partition} from offset {before}, the store is "
                f"at {known}",
            )


def require_no_journals(path: Path, header: TaskHeader, changelog: TopicPartition) -> None:
    """Reject restoring while a batch is unfinished."""
    if header.journals:
        entry = header.journals[0]
        raise _out_of_step(
            path,
            f"{changelog} cannot be restored over the unfinished batch {entry.batch} of leg {entry.leg!r}: undo it "
            "first",
        )


def _out_of_step(path: Path, what: str) -> StoreOutOfStepException:
    return StoreOutOfStepException(f"task {path.name}: {what}; the task must be initialized again")
