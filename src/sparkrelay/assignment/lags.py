"""Lags of copies, and when a copy counts as caught up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sparkrelay.protocol import LATEST_OFFSET, LONG_MAX, UNKNOWN_OFFSET_SUM

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from sparkrelay.assignment.kafka_streams_state import KafkaStreamsState
    from sparkrelay.types import ProcessId, TaskId


def is_caught_up(lag: int, acceptable: int) -> bool:
    """Return whether a copy is caught up. See KIP-441, "Computing the most-caught-up instances".

    As in Java's HighAvailabilityTaskAssignor, a running task is caught up (lag -2) and an unknown offset is not (-3);
    with an ``acceptable.recovery.lag`` of the largest long every copy is.
    """
    return acceptable == LONG_MAX or lag == LATEST_OFFSET or 0 <= lag <= acceptable


def are_caught_up(lags: NDArray[np.int64], acceptable: int) -> NDArray[np.bool_]:
    """Return :func:`is_caught_up` of each lag."""
    if acceptable == LONG_MAX:
        return np.ones(lags.shape, np.bool_)
    caught_up: NDArray[np.bool_] = (lags == LATEST_OFFSET) | ((lags >= 0) & (lags <= acceptable))
    return caught_up


def shortest_lag_to_catch_up(acceptable: int) -> int:
    """Return the smallest lag that is not caught up, at most the largest long."""
    return min(LONG_MAX, acceptable + 1)


def lag_of(offset_sum: int | None, end_offset_sum: int) -> int:
    """Return the lag of a copy by its offset sum (None: no copy)."""
    if offset_sum in {LATEST_OFFSET, UNKNOWN_OFFSET_SUM}:
        return offset_sum
    # If the log is shorter than the copy it was truncated or recreated, and the copy is useless.
    return end_offset_sum if offset_sum is None or offset_sum > end_offset_sum else end_offset_sum - offset_sum


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
        if list(known) == wanted:  # the usual case, without lookups
            row[:] = np.fromiter(known.values(), np.int64, len(wanted))
            continue
        try:
            row[:] = [known[task] for task in wanted]
        except KeyError as missing:
            states[process].lag_for(missing.args[0])  # raises StreamsException
            raise
    return lags
