"""One instance of SparkRelay running a query of Nexmark. See ``bench.instance`` for how it reports."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from bench.instance import Reporter, Stopping, run_instance
from bench.nexmark.queries import QUERIES
from bench.relay_instance import run_topology
from sparkrelay import StreamsBuilder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkrelay.topology import Topology


def run(orders: dict[str, Any], report: Reporter, stopping: Stopping) -> None:
    """Run until asked to stop."""

    def build(spark: SparkSession) -> Topology:
        builder = StreamsBuilder()
        QUERIES[orders["nexmark"]].write(builder, spark, orders["sink"], orders["sources"])
        return builder.build()

    run_topology(build, {**orders, "topics": list(orders["sources"].values())}, report, stopping)


if __name__ == "__main__":
    sys.exit(run_instance(run))
