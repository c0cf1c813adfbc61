"""One instance of SparkRelay running one of ``bench.statements``. See ``bench.instance`` for how it reports."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from bench.instance import Reporter, Stopping, run_instance
from bench.relay_instance import run_topology
from bench.statements import STATEMENTS, write
from sparkrelay import StreamsBuilder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkrelay.topology import Topology


def run(orders: dict[str, Any], report: Reporter, stopping: Stopping) -> None:
    """Run until asked to stop."""

    def build(spark: SparkSession) -> Topology:
        builder = StreamsBuilder(spark)
        write(builder, STATEMENTS[orders["statement"]], orders["sources"], orders["sink"])
        return builder.build()

    run_topology(build, {**orders, "topics": list(orders["sources"].values())}, report, stopping)


if __name__ == "__main__":
    sys.exit(run_instance(run))
