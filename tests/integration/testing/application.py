"""One application that runs one topology after another, each on the topics, the state and the commits of the last."""

from __future__ import annotations

import shutil
from contextlib import contextmanager

from tests.waiting import remove_folder

from sparkrelay.testing import TopologyTestDriver


class Application:
    """Has a test driver for each topology, and copies everything that outlives an instance from one to the next."""

    def __init__(self, spark, home):
        self._spark = spark
        self._topics, self._home = home / "topics", home
        self._transactions = None
        self._topics.mkdir(parents=True)

    @contextmanager
    def running(self, builder, config=None, *, state="state", **options):
        """Start an instance with this pipeline, and end it after the block.

        Args:
            builder: has the pipeline.
            config: of the instance.
            state: name of its state directory: another name is another host.
            options: of the driver.

        Raises:
            SparkRelayError: what an instance would have ended with when it takes its tasks over.
        """
        with TopologyTestDriver(builder.build(), config, spark=self._spark, **options) as driver:
            tasks = driver._tasks
            # The driver has begun on nothing.
            tasks.close()
            kept = self._home / state
            kept.mkdir(exist_ok=True)
            topics, local = driver._folder / "topics", driver._folder / "state"
            if self._transactions is not None:
                tasks._transactions.commits = self._transactions.commits
            self._transactions = tasks._transactions
            _replace(topics, self._topics)
            _replace(local, kept)
            try:
                tasks.open()
                yield driver
            finally:
                tasks.close()
                _replace(self._topics, topics)
                _replace(kept, local)

    def lose_state(self):
        """Remove the local state, so that the next instance restores it from the changelogs."""
        remove_folder(self._home / "state")


def _replace(target, source):
    """Replace a directory by a copy. A worker that has a file open would refuse it under another name."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
