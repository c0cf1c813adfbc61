"""Starting Spark's Python worker daemon early, while Catalyst checks the topology and the group is joined.

The daemon imports Arrow, numba and the Kafka client before it can fork the first worker: seconds that would otherwise
pass between an assignment and its first task in service.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from sparkrelay.runtime.worker.context import no_rows

if TYPE_CHECKING:
    from sparkrelay.runtime.spark.executor_target import ExecutorTarget

__all__ = ["start_workers"]

log = logging.getLogger(__name__)


def start_workers(target: ExecutorTarget) -> None:
    """Run a job without work on another thread; nobody waits for it, and its failure shows in the first real job."""

    def run() -> None:
        try:
            source = target.source()
            target.mark_jobs()
            group = target.job_group("sparkrelay-start-workers")
            source.sparkSession.sparkContext.setJobGroup(group, "starting Python workers")
            source.mapInArrow(no_rows, "nothing int")._jdf.collect()
        except Exception as error:  # noqa: BLE001 - whatever it is, the first real job meets it again and reports it
            log.debug("starting Python workers failed: %s", error)

    threading.Thread(target=run, name="sparkrelay-start-workers", daemon=True).start()
