"""What the figures were measured on."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import pyspark

import sparkrelay
from bench.connector import CONNECTOR
from sparkrelay.devkafka import KAFKA_VERSION
from sparkrelay.java import require_java

__all__ = ["facts", "load_average"]


def load_average() -> float:
    """Return how many processes wanted a core, over the last minute."""
    return round(os.getloadavg()[0], 2)


def facts() -> dict[str, Any]:
    """Return cores, memory and versions."""
    java = subprocess.run([require_java(), "-version"], capture_output=True, text=True, check=True).stderr
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "cpu": _field("/proc/cpuinfo", "model name"),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "load_average": load_average(),
        "sparkrelay": f"{sparkrelay.__version__} {_commit()}".strip(),
        "python": platform.python_version(),
        "spark": pyspark.__version__,
        "spark_kafka_connector": CONNECTOR[0][2],
        "kafka": KAFKA_VERSION,
        # Before its version it says what it was given by the environment.
        "java": java.partition('version "')[2].partition('"')[0],
        "pyarrow": importlib.metadata.version("pyarrow"),
    }


def _field(path: str, name: str) -> str:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), platform.machine())


def _commit() -> str:
    run = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return run.stdout.strip()
