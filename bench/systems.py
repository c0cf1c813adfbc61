"""The systems that are compared, and the orders that start an instance of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.topics import APPLICATION_PREFIX
from bench.workload import PARTITIONS

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["RELAY", "STRUCTURED", "SYSTEMS", "System", "Variant"]

_CORES = 2
#: The same for both: cores, and no web page.
_SPARK = {"spark.master": f"local[{_CORES}]", "spark.ui.enabled": "false"}


@dataclass(frozen=True, slots=True)
class System:
    """A system under test: its name, and the module of its instance."""

    name: str
    module: str


RELAY = System("SparkRelay", "bench.relay_instance")
STRUCTURED = System("Structured Streaming", "bench.structured_instance")
SYSTEMS = {"relay": RELAY, "structured": STRUCTURED}


@dataclass(frozen=True, slots=True)
class Variant:
    """A system with a bound on its micro-batches.

    Attributes:
        system: which system.
        batch_records: most records of a micro-batch over all partitions; None for the system's own default.
    """

    system: System
    batch_records: int | None = None

    @property
    def name(self) -> str:
        """What the table calls it."""
        if self.batch_records is None:
            return self.system.name
        size = (
            f"{self.batch_records // 1000} k" if self.batch_records < 1_000_000 else f"{self.batch_records / 1e6:g} M"
        )
        return f"{self.system.name}, {size} a batch"

    def orders(
        self, *, bootstrap_servers: str, source: str, sink: str, folder: Path, look_s: float = 0.25
    ) -> dict[str, Any]:
        """Return the argument of an instance.

        Args:
            bootstrap_servers: the broker.
            source: topic to read.
            sink: topic to write.
            folder: where it keeps its state; empty for a cold start.
            look_s: time between looks for new batches: an end may be seen this late.
        """
        orders: dict[str, Any] = {"source": source, "sink": sink, "spark": dict(_SPARK), "look_s": look_s}
        if self.system is RELAY:
            orders["config"] = {
                "application.id": APPLICATION_PREFIX + sink,
                "bootstrap.servers": bootstrap_servers,
                "state.dir": str(folder),
            }
            if self.batch_records:
                orders["config"]["max.batch.records"] = self.batch_records // PARTITIONS
        else:
            orders |= {
                "bootstrap_servers": bootstrap_servers,
                "folder": str(folder),
                "max_batch_records": self.batch_records,
            }
        return orders
