"""The systems that are compared, and the orders that start an instance of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.topics import APPLICATION_PREFIX
from bench.workload import PARTITIONS

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "AT_LEAST_ONCE",
    "EXACTLY_ONCE",
    "NO_CACHE",
    "REAL_TIME",
    "RELAY",
    "SHORT_COMMIT",
    "SHORT_LINGER",
    "STREAMS",
    "STREAMS_AT_LEAST_ONCE",
    "STREAMS_EXACTLY_ONCE",
    "STRUCTURED",
    "SYSTEMS",
    "System",
    "Variant",
]

_CORES = 2
#: The same for both on Spark: cores, and no web page.
_SPARK = {"spark.master": f"local[{_CORES}]", "spark.ui.enabled": "false"}


@dataclass(frozen=True, slots=True)
class System:
    """A system under test: its name, and the module of its instance."""

    name: str
    module: str


RELAY = System("SparkRelay", "bench.relay_instance")
STRUCTURED = System("Structured Streaming", "bench.structured_instance")
STREAMS = System("Kafka Streams", "bench.streams_instance")
SYSTEMS = {"relay": RELAY, "structured": STRUCTURED, "streams": STREAMS}

Settings = tuple[tuple[str, str], ...]
#: Kafka Streams' settings with their own names; what is not named has its default.
EXACTLY_ONCE: Settings = (("processing.guarantee", "exactly_once_v2"),)
AT_LEAST_ONCE: Settings = (("processing.guarantee", "at_least_once"),)
#: Its producers wait for 100 ms unless set otherwise; the producer's own default is 5 ms (Kafka 4).
SHORT_LINGER: Settings = (("producer.linger.ms", "5"),)
SHORT_COMMIT: Settings = (("commit.interval.ms", "10"), *SHORT_LINGER)
#: The cache holds updates back until the next commit.
NO_CACHE: Settings = (("statestore.cache.max.bytes", "0"),)


@dataclass(frozen=True, slots=True)
class Variant:
    """A system with its settings beyond the defaults.

    Attributes:
        system: which system.
        batch_records: most records of a micro-batch over all partitions; None for the system's own default.
        summary: what the settings come to, in words.
        settings: added to ``orders["config"]``; not for Structured Streaming, which has none.
        real_time: Structured Streaming's real-time mode: tasks that stay, at least once.
    """

    system: System
    batch_records: int | None = None
    summary: str = ""
    settings: Settings = ()
    real_time: bool = False

    @property
    def name(self) -> str:
        """What the table calls it."""
        if self.batch_records is None:
            return f"{self.system.name}, {self.summary}" if self.summary else self.system.name
        size = (
            f"{self.batch_records // 1000} k" if self.batch_records < 1_000_000 else f"{self.batch_records / 1e6:g} M"
        )
        return f"{self.system.name}, {size} a batch"

    def spark(self) -> dict[str, str]:
        """Return the settings of the Spark session."""
        # A slot for every task of every stage in real-time mode.
        return _SPARK | ({"spark.master": f"local[{3 * PARTITIONS}]"} if self.real_time else {})

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
        orders: dict[str, Any] = {"source": source, "sink": sink, "look_s": look_s}
        if self.system is not STREAMS:
            orders["spark"] = self.spark()
        if self.system is STRUCTURED:
            return orders | {
                "bootstrap_servers": bootstrap_servers,
                "folder": str(folder),
                "max_batch_records": self.batch_records,
                "real_time": self.real_time,
            }
        config: dict[str, Any] = {
            "application.id": APPLICATION_PREFIX + sink,
            "bootstrap.servers": bootstrap_servers,
            "state.dir": str(folder),
        }
        if self.system is STREAMS:
            config["num.stream.threads"] = _CORES
        if self.batch_records:
            config["max.batch.records"] = self.batch_records // PARTITIONS
            # Twice the default, so that it is the number of records that bounds a micro-batch.
            config["max.batch.bytes"] = 256 << 20
        return orders | {"config": config | dict(self.settings)}


REAL_TIME = Variant(STRUCTURED, summary="real-time mode, at least once", real_time=True)
STREAMS_EXACTLY_ONCE = Variant(STREAMS, summary="exactly once", settings=EXACTLY_ONCE)
STREAMS_AT_LEAST_ONCE = Variant(STREAMS, summary="at least once", settings=AT_LEAST_ONCE)
