"""Which hidden columns travel with the rows of a leg, at its source, behind its stateful step and behind its table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparkrelay import hidden_columns

if TYPE_CHECKING:
    from sparkrelay.topology import Aggregation, Leg

#: Of rows behind a stateful step.
EMITTED: Final = (hidden_columns.PARTITION, hidden_columns.TIMESTAMP, hidden_columns.KEY)
#: Of rows behind a table's filters: some of them delete.
SETTLED: Final = (*EMITTED, hidden_columns.TOMBSTONE)
#: Of the rows of a table as they were and as they are.
CHANGES: Final = (*EMITTED, hidden_columns.CHANGE)


def emitted_columns(leg: Leg, aggregation: Aggregation) -> tuple[str, ...]:
    """Return the hidden columns of the rows that a stateful step emits."""
    if leg.filters_table or leg.sends_changes:
        return CHANGES
    merges = aggregation.sessions and not aggregation.final
    return SETTLED if _deletes(aggregation) or merges or leg.source.changes else EMITTED


def joined_columns(leg: Leg) -> tuple[str, ...]:
    """Return the hidden columns of rows that are joined of tables."""
    return CHANGES if leg.filters_table or leg.sends_changes else SETTLED


def keeps_newest(leg: Leg) -> bool:
    """Return whether a leg keeps a table of newest rows, from which tombstones delete."""
    return leg.aggregation is not None and _deletes(leg.aggregation)


def _deletes(aggregation: Aggregation) -> bool:
    return aggregation.newest and aggregation.ranking is None


def carried_columns(leg: Leg) -> tuple[str, ...]:
    """Return the hidden columns that a leg's source rows carry."""
    newest = keeps_newest(leg)
    names = [hidden_columns.PARTITION, hidden_columns.TIMESTAMP]
    if leg.stateful_step is None:
        names += [hidden_columns.KEY, hidden_columns.TOMBSTONE]
    elif newest:
        names.append(hidden_columns.TOMBSTONE)
    elif leg.emitting is not None and leg.emitting.keeps_columns:
        names.append(hidden_columns.KEY)
    if newest or leg.lookups:
        names.append(hidden_columns.PARTITION_TIME)
    if leg.source.changes:
        names.append(hidden_columns.CHANGE)
    if leg.keeps_watermark and len(leg.source.topics) > 1:
        names.append(hidden_columns.SOURCE)
    return tuple(names)
