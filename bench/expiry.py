"""Expiry: what it costs that windows end, as a share of throughput.

The query of ``bench.windows`` in update mode, on the same topic: with windows that end, and with windows that do not
end in this run, because the watermark is a thousand days late or there is none. A cost is what the rate lacks to that
of the windows that stay, in the same round; the median of the rounds. Beside each rate stands what the cost is in
records per second of processor time, which hardly depends on what else the machine does.
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bench.drain import Case, run_rounds
from bench.systems import RELAY, STREAMS, STREAMS_EXACTLY_ONCE, STRUCTURED, Variant

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from bench.systems import System
    from bench.windows import WindowWorkload

__all__ = ["cost_percent", "expiry"]

_LATE_S = 1000 * 86_400
_ENDING = "windows end"
_STAYING = {"windows stay, the watermark is late": _LATE_S, "windows stay, no watermark": None}
_RATES = ("warm_rps", "warm_records_per_cpu_s")


def expiry(
    bootstrap_servers: str,
    *,
    workload: WindowWorkload,
    systems: Collection[System],
    repeats: int,
    on_figures: Callable[[dict[str, Any]], None],
) -> list[dict[str, Any]]:
    """Drain the topic with windows that end and with windows that stay, ``repeats`` times.

    Args:
        bootstrap_servers: the broker.
        workload: what to drain.
        systems: which ones to run.
        repeats: rounds.
        on_figures: called with each run's figures.

    Returns:
        A line for each system and kind of window, with the cost of windows that end against those of the line.

    Raises:
        BenchError: an instance failed, or its output is not exact.
    """
    size = workload.records // 5 + workload.closing
    variants = (Variant(RELAY, size), Variant(STRUCTURED, size), STREAMS_EXACTLY_ONCE)
    cases: dict[tuple[Variant, str], Case] = {}
    for variant in (variant for variant in variants if variant.system in systems):
        for kind, delay_s in {_ENDING: workload.delay_s, **_STAYING}.items():
            # Kafka Streams has no windows without a grace period.
            if delay_s is not None or variant.system is not STREAMS:
                queried = replace(workload, final=False, delay_s=delay_s)
                cases[variant, kind] = Case(f"{variant.name}: {kind}", variant, queried)
    runs = run_rounds(bootstrap_servers, "expiry", list(cases.values()), repeats=repeats, on_figures=on_figures)
    return [
        {
            "bench": "expiry",
            "variant": case.name,
            "runs": repeats,
            **{rate: round(statistics.median(run[rate] for run in runs[case])) for rate in _RATES},
            **(
                {}
                if kind == _ENDING
                else {
                    name: cost_percent(runs[cases[variant, _ENDING]], runs[case], rate)
                    for name, rate in zip(("cost_percent", "cpu_cost_percent"), _RATES, strict=True)
                }
            ),
        }
        for (variant, kind), case in cases.items()
    ]


def cost_percent(ending: Sequence[Mapping[str, Any]], staying: Sequence[Mapping[str, Any]], rate: str) -> float:
    """Return how much lower a rate is where windows end, as the median of the rounds."""
    costs = [1 - run[rate] / beside[rate] for run, beside in zip(ending, staying, strict=True)]
    return round(statistics.median(costs) * 100, 1)
