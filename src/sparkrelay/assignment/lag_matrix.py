"""All lags of a group at once, as numbers that can be compared by the million."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from sparkrelay.assignment.kafka_streams_state import KafkaStreamsState
    from sparkrelay.types import ProcessId, TaskId

__all__ = ["lag_matrix"]


def lag_matrix(
    states: Mapping[ProcessId, KafkaStreamsState], processes: Sequence[ProcessId], tasks: Sequence[TaskId]
) -> NDArray[np.int64]:
    """Return lags in offsets, processes x tasks, sentinels included.

    Raises:
        StreamsException: a process does not know the lag of one of the tasks.
        UnsupportedOperationException: lags were not computed.
    """
    lags = np.empty((len(processes), len(tasks)), np.int64)
    wanted = list(tasks)
    for row, process in zip(lags, processes, strict=True):
        known = states[process].stateful_tasks_to_lag_sums
        if list(known) == wanted:  # as the leader makes them: no need to look each one up
            row[:] = np.fromiter(known.values(), np.int64, len(wanted))
            continue
        try:
            row[:] = [known[task] for task in wanted]
        except KeyError as missing:
            states[process].lag_for(missing.args[0])  # says which task is unknown
            raise
    return lags
