"""Refuses settings with which Spark would never run our jobs, or would end each worker.

Otherwise an instance would wait, or fail much later, without an explanation. ``session.check_session`` warns of
settings that only cost time.
"""

from __future__ import annotations

import functools
import logging
import math
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from sparkrelay.errors import ConfigException

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark import SparkConf

log = logging.getLogger(__name__)

_MB: Final = 1 << 20
#: Address space of a worker beyond its imports: compiled kernels, threads, a batch, parts of a store or two.
_WORK_MB: Final = 512
#: A worker's imports, and a compiled loop, which loads numba.
_PROBE: Final = """
import pyarrow as pa
import sparkrelay.runtime.worker.publish, sparkrelay.runtime.worker.restore
from sparkrelay.records.keys import key_bytes
key_bytes([pa.array([1]), pa.array([2])])
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmPeak")))
"""
_PROBE_SECONDS: Final = 120.0
_SECONDS: Final = {"us": 1e-6, "ms": 1e-3, "": 1e-3, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_MEGABYTES: Final = {"b": 1 / _MB, "k": 1 / 1024, "m": 1, "": 1, "g": 1 << 10, "t": 1 << 20, "p": 1 << 30}
_EXCLUDING: Final = tuple(f"spark.excludeOnFailure.{part}enabled" for part in ("", "application.", "taskAndStage."))
_PLACEHOLDER_ALLOCATORS: Final = re.compile(r"(.*\.)?(statefulset|deployment)(podsallocator)?", re.IGNORECASE)


def refuse_unusable(conf: SparkConf, python: str, *, local: bool) -> None:
    """Raise ConfigException for a setting of a session that cannot work.

    ``python`` is ``SparkContext.pythonExec``, which starts workers; ``local`` is true for ``local[N]``.
    """
    if is_on(conf, "spark.speculation"):
        raise ConfigException("spark.speculation=true would run one task's writes twice; set it to false")
    _refuse_cluster_mode(conf)
    _refuse_small_workers(conf)
    if (conf.get("spark.python.use.daemon") or "true").lower() == "false":
        raise ConfigException(
            "Spark setting spark.python.use.daemon=false starts a Python process for each step of each micro-batch, "
            "which imports everything again: Spark stops waiting for it, and nothing is processed. Leave it out"
        )
    if local:
        # On a cluster the first job on an executor reports it (``no_python``).
        if shutil.which(python) is None:
            raise ConfigException(no_python(python))
        return
    for key in _EXCLUDING:
        if is_on(conf, key):
            raise ConfigException(
                f"Spark setting {key}=true excludes an executor on which a job failed, but each job here belongs to "
                "the executor that has its state: it would wait forever. Set it to false; failed batches are retried "
                "anyway (max.batch.retries)"
            )
    _refuse_short_waits(conf)
    allocator = conf.get("spark.kubernetes.allocation.pods.allocator") or "direct"
    if (conf.get("spark.master") or "").startswith("k8s") and _PLACEHOLDER_ALLOCATORS.fullmatch(allocator):
        raise ConfigException(
            f"Spark setting spark.kubernetes.allocation.pods.allocator={allocator} starts all executors with a "
            "placeholder for --executor-id, by which a worker identifies its executor: every job would be refused as "
            "misplaced. Set it to direct, Spark's default"
        )


def _refuse_cluster_mode(conf: SparkConf) -> None:
    """Refuse a driver that spark-submit started in the cluster; on Kubernetes it starts it there as a client."""
    deployed = (conf.get("spark.submit.deployMode") or "client").lower() == "cluster"
    if deployed or is_on(conf, "spark.kubernetes.submitInDriver"):
        raise ConfigException(
            "the script was submitted with --deploy-mode cluster: there its parent JVM receives the termination signal "
            "and ends Spark at once, so that each stop would be a kill. Run python pipeline.py, or spark-submit "
            "--deploy-mode client, on a host or in a pod that executors can reach"
        )


def _refuse_short_waits(conf: SparkConf) -> None:
    wait = conf.get("spark.locality.wait") or "3s"
    for key in ("spark.locality.wait.process", "spark.locality.wait.node"):
        own = conf.get(key)
        if own and _in_units(own, _SECONDS) < _in_units(wait, _SECONDS):
            raise ConfigException(
                f"Spark setting {key}={own} overrides spark.locality.wait={wait}: jobs would be started on an executor "
                "without their state, and be refused there. Leave it out, and set spark.locality.wait=10m"
            )


def _refuse_small_workers(conf: SparkConf) -> None:
    given = conf.get("spark.executor.pyspark.memory")
    if not given or not sys.platform.startswith("linux"):
        # Spark limits it on Linux only.
        return
    cores = int(conf.get("spark.executor.cores") or 1)
    each, needed = int(_in_units(given, _MEGABYTES)) // cores, needed_megabytes()
    # For Spark, 0 is no limit.
    if 0 < each < needed:
        raise ConfigException(
            f"Spark setting spark.executor.pyspark.memory={given} limits the address space of each Python worker to "
            f"{each} MB (it is divided by spark.executor.cores={cores}); one needs {needed} MB, of which "
            f"{needed - _WORK_MB} for imports, plus the size of its stores. Leave it out, limit the container instead, "
            f"or set it to at least {needed * cores}m plus the size of an executor's stores"
        )


@functools.cache
def needed_megabytes() -> int:
    """Return the address space of a Python worker without stores, MB, measured in a child process."""
    try:
        child = subprocess.run(
            [sys.executable, "-c", _PROBE], capture_output=True, text=True, check=True, timeout=_PROBE_SECONDS
        )
    except subprocess.SubprocessError as error:
        # Without a measurement nothing is refused.
        log.debug("the address space of a worker could not be measured: %s", error)
        return 0
    return math.ceil(int(child.stdout) / 1024) + _WORK_MB


def no_python(program: str) -> str:
    """Return the message for a missing Python of workers."""
    return (
        f"Spark's Python workers cannot be started: there is no program {program!r}. It is set by "
        "spark.pyspark.python with spark-submit, otherwise by PYSPARK_PYTHON before the session is made "
        "(spark.pyspark.driver.python and PYSPARK_DRIVER_PYTHON are only for the script). Set it to a Python that has "
        f"sparkrelay, on each host; the script runs {sys.executable}"
    )


def no_daemon(said: str, job: str) -> str:
    """Return the message for a Python of workers that lacks sparkrelay or a dependency: its last line of output."""
    return (
        f"Spark's Python workers cannot be started for the Spark job {job!r}. Their Python said: {said!r}. It differs "
        f"from the script's, {sys.executable}, or that host has other packages. Install sparkrelay there under the "
        "same path, with the script's versions; or set PYSPARK_PYTHON to a Python that has it before the session is "
        "made (spark.pyspark.python with spark-submit); or ship one with spark.archives"
    )


def _in_units(text: str, units: Mapping[str, float]) -> float:
    """Parse a number with one of Spark's units, such as ``10m`` or ``2g``."""
    match = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
    if match is not None:
        for unit in (match[2], match[2].removesuffix("b")):
            if unit in units:
                return int(match[1]) * units[unit]
    raise ConfigException(f"{text!r} is not a number with one of Spark's units")


def is_on(conf: SparkConf, key: str) -> bool:
    """Return whether a setting is true; they are false by default."""
    return (conf.get(key) or "false").lower() == "true"
