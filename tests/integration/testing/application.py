"""One application that runs one topology after another, each on the topics, the state and the commits of the last."""

from __future__ import annotations

import shutil
from contextlib import contextmanager

from sparkrelay.testing import TopologyTestDriver


class Application:
    """Has a test driver for each topology, and copies everything that outlives an instance from one to the next."""

    def __init__(self, spark, home):
        self._spark = spark
        self._topics, self._state = home / "topics", home / "state"
        self._transactions = None
        for folder in (self._topics, self._state):
            folder.mkdir(parents=True)

    @contextmanager
    def running(self, builder, config=None, **options):
        """Start an instance with this pipeline, and end it after the block.

        Args:
            builder: has the pipeline.
            config: of the instance.
            options: of the driver.

        Raises:
            SparkRelayError: what an instance would have ended with when it takes its tasks over.
        """
        with TopologyTestDriver(builder.build(), config, spark=self._spark, **options) as driver:
            tasks = driver._tasks
            # The driver has begun on nothing.
            tasks.close()
            topics, state = driver._folder / "topics", driver._folder / "state"
            if self._transactions is not None:
                tasks._transactions.commits = self._transactions.commits
                tasks._transactions._numbers = self._transactions._numbers
            self._transactions = tasks._transactions
            _replace(topics, self._topics)
            _replace(state, self._state)
            try:
                tasks.open()
                yield driver
            finally:
                tasks.close()
                _replace(self._topics, topics)
                _replace(self._state, state)

    def lose_state(self):
        """Remove the local state, so that the next instance restores it from the changelogs."""
        shutil.rmtree(self._state)
        self._state.mkdir()


def _replace(target, source):
    """Replace a directory by a copy. A worker that has a file open would refuse it under another name."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
