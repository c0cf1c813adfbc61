"""Driver: how long a test waits for one record that it pipes through ``TopologyTestDriver``, once Spark is up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bench.children import Instance
from bench.driver_instance import QUERIES
from bench.machine import load_average
from bench.systems import RELAY, Variant

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["driver"]

_MODULE = "bench.driver_instance"
_TIMEOUT_S = 300.0


def driver(*, steps: int, repeats: int, on_figures: Callable[[dict[str, Any]], None]) -> list[dict[str, Any]]:
    """Take ``steps`` records through each query, in ``repeats`` processes.

    Returns:
        A line for each query: medians of each process's median, p99 and longest step, and of its first one, seconds.

    Raises:
        BenchError: the process failed, or an output was not exact.
    """
    runs: dict[str, list[dict[str, Any]]] = {query: [] for query in QUERIES}
    for number in range(1, repeats + 1):
        load_before = load_average()
        with Instance(_MODULE, {"spark": Variant(RELAY).spark(), "steps": steps}) as instance:
            for _ in QUERIES:
                report = instance.wait_for("steps", _TIMEOUT_S)
                p50, p99, worst = np.percentile(report["seconds"], (50, 99, 100))
                taken = {"first_s": report["first_s"], "p50_s": p50, "p99_s": p99, "max_s": worst}
                figures = {name: round(float(seconds), 4) for name, seconds in taken.items()}
                runs[report["query"]].append(figures)
                line = {"bench": "driver", "query": report["query"], "run": number, **figures, "exact": True}
                on_figures({**line, "load_average_before": load_before})
            instance.stop()
    return [
        {
            "bench": "driver",
            "query": query,
            "runs": repeats,
            "steps": steps,
            **{name: round(float(np.median([figures[name] for figures in made])), 4) for name in made[0]},
        }
        for query, made in runs.items()
    ]
