"""What an instance of SparkRelay has done by when, while it starts: read from its log, each phase reported once."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.instance import Reporter

__all__ = ["PhaseLog"]

#: Logger -> words of a line -> the phase that it ends.
_PHASES = {
    "sparkrelay.runtime.batch.batch_thread": {"legs have run without a task": "prewarmed"},
    "sparkrelay.runtime.topics.topics": {"creating internal topics": "leads the group"},
    "sparkrelay.runtime.group.assignment_log": {"generation ": "assigned"},
}


class PhaseLog(logging.Handler):
    """Reports phases.

    Args:
        report: takes them.
    """

    def __init__(self, report: Reporter) -> None:
        super().__init__(logging.DEBUG)
        self._report = report
        self._left = {name: dict(words) for name, words in _PHASES.items()}
        for name in _PHASES:
            logger = logging.getLogger(name)
            logger.setLevel(logging.DEBUG)
            logger.addHandler(self)

    def detach(self) -> None:
        """Report nothing more."""
        for name in _PHASES:
            logger = logging.getLogger(name)
            logger.setLevel(logging.NOTSET)
            logger.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Look whether a line ends a phase."""
        text = record.getMessage()
        left = self._left[record.name]
        for words in [words for words in left if words in text]:
            self._report("phase", name=left.pop(words), at=record.created)
