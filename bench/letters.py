"""Dead letters: what it costs that one record of a hundred does not decode, as a share of throughput.

The drain of ``bench.drain`` with a dead letter topic, from a topic without bad records and from one in which a few of
the records that the query leaves out anyway are no JSON. So both have the same answer. Letters are counted in the end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.children import BenchError
from bench.drain import Case, compared, run_rounds
from bench.results import read_messages
from bench.systems import RELAY, Variant
from bench.workload import NEVER_DELETED, PARTITIONS, Workload, json_values, kept, write_values
from sparkrelay.devkafka.topics import create_topic, delete_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bench.results import Totals

__all__ = ["LetterWorkload", "letters"]

#: One record of so many is bad.
_EVERY = 100
_BAD = f"no json, {'.' * 80}"
_TOPIC = "letters-left-out"
_SETTINGS = (
    ("deserialization.exception.handler", "log-and-continue"),
    ("errors.dead.letter.queue.topic.name", _TOPIC),
)


@dataclass(frozen=True, slots=True)
class LetterWorkload(Workload):
    """How much there is to do, and whether some of it is bad.

    Attributes:
        bad: True to read the topic with bad records.
    """

    bad: bool = False

    @property
    def letters(self) -> int:
        """How many letters a run with bad records writes."""
        return PARTITIONS * (self.records // PARTITIONS // _EVERY) * self.passes

    def orders(self, source: str) -> dict[str, Any]:
        """Return what an instance's orders say of the query."""
        return {"query": "totals", "source": _with_bad(source) if self.bad else source}

    def load(self, bootstrap_servers: str, source: str) -> Mapping[str, float]:
        """Make both topics and write all passes, and make that of letters."""
        for topic in (_TOPIC, _with_bad(source)):
            create_topic(bootstrap_servers, topic, partitions=PARTITIONS, config=NEVER_DELETED)
        parts, first = [], 0
        for users, quarters, actions in self.columns():
            values = json_values(users, quarters, actions, first)
            first += len(values)
            parts.append((users, pc.replace_with_mask(values, self._bad_ones(actions), pa.scalar(_BAD))))
        write_values(bootstrap_servers, _with_bad(source), parts, passes=self.passes)
        return super(LetterWorkload, self).load(bootstrap_servers, source)

    def unload(self, bootstrap_servers: str, source: str) -> None:
        """Delete what :meth:`load` has made."""
        super(LetterWorkload, self).unload(bootstrap_servers, source)
        for topic in (_TOPIC, _with_bad(source)):
            delete_topic(bootstrap_servers, topic)

    def found(self, bootstrap_servers: str, sink: str) -> tuple[Totals, int]:
        """Return what the result topic comes to, once the letters are counted.

        Raises:
            BenchError: they are not those of some runs.
        """
        count = sum(map(len, read_messages(bootstrap_servers, _TOPIC)))
        if self.bad and (not count or count % self.letters):
            raise BenchError(f"{count} letters, and each run should have written {self.letters}")
        return super(LetterWorkload, self).found(bootstrap_servers, sink)

    def _bad_ones(self, actions: np.ndarray) -> pa.Array:
        """Return which records of a partition are bad: some of those that the query leaves out."""
        count = self.records // PARTITIONS // _EVERY
        left_out = np.flatnonzero(~kept(actions))
        mask = np.zeros(len(actions), dtype=bool)
        mask[left_out[:: max(1, len(left_out) // count)][:count]] = True
        return pa.array(mask)


def letters(
    bootstrap_servers: str,
    *,
    workload: LetterWorkload,
    repeats: int,
    on_figures: Callable[[dict[str, Any]], None],
) -> list[dict[str, Any]]:
    """Drain both topics, ``repeats`` times.

    Args:
        bootstrap_servers: the broker.
        workload: what to drain.
        repeats: rounds.
        on_figures: called with each run's figures.

    Returns:
        A line for each topic; that of the one with bad records has the ratio to the other's rate, as the median of the
        rounds.

    Raises:
        BenchError: an instance failed, or its output is not exact.
    """
    variant = Variant(RELAY, workload.records // 5, settings=_SETTINGS)
    clean = Case(f"{variant.name}: no bad records", variant, replace(workload, bad=False))
    dirty = Case(f"{variant.name}: 1 % bad records", variant, replace(workload, bad=True))
    runs = run_rounds(bootstrap_servers, "letters", [clean, dirty], repeats=repeats, on_figures=on_figures)
    return compared("letters", runs, clean, dirty)


def _with_bad(source: str) -> str:
    return f"{source}-with-bad"
