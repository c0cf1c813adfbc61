"""One Structured Streaming query of Nexmark, the peer. See ``bench.instance`` for how it reports."""

from __future__ import annotations

import sys
from typing import Any

from bench.instance import Reporter, Stopping, run_instance
from bench.nexmark.structured_queries import start_query
from bench.structured_instance import run_query


def run(orders: dict[str, Any], report: Reporter, stopping: Stopping) -> None:
    """Run until asked to stop."""
    run_query(start_query, orders, report, stopping)


if __name__ == "__main__":
    sys.exit(run_instance(run))
