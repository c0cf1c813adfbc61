"""Starts Spark's Python worker daemon early, while Catalyst checks the topology and the instance joins the group.

The daemon imports Arrow, numba and the Kafka client before it forks the first worker: this takes seconds, which would
otherwise delay the first task.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from sparkrelay.runtime.worker.context import no_rows

if TYPE_CHECKING:
    from sparkrelay.runtime.spark.executor_target import ExecutorTarget

log = logging.getLogger(__name__)


def start_workers(target: ExecutorTarget) -> None:
    """Run an empty job on another thread; nobody waits for it, and the first real job reports a failure."""

    def run() -> None:
        try:
            source = target.source()
            target.mark_jobs()
            group = target.job_group("sparkrelay-start-workers")
            source.sparkSession.sparkContext.setJobGroup(group, "starting Python workers")
            source.mapInArrow(no_rows, "nothing int")._jdf.collect()
        except Exception as error:  # noqa: BLE001 - the first real job reports it
            log.debug("starting Python workers failed: %s", error)

    threading.Thread(target=run, name="sparkrelay-start-workers", daemon=True).start()
