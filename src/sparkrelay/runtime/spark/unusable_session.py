"""Settings with which Spark would take our jobs and never run them, or would end each worker: refused at once.

Without that an instance waits, or fails much later, and neither says why. What only costs time is logged by
``session.check_session``.
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

__all__ = ["needed_megabytes", "no_daemon", "no_python", "refuse_unusable"]

log = logging.getLogger(__name__)

_MB: Final = 1 << 20
#: What a worker maps beside its imports: compiled kernels, threads, a batch, the first piece of a store or two.
_WORK_MB: Final = 512
_PROBE: Final = """
import sparkrelay.runtime.worker.publish, sparkrelay.runtime.worker.restore
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmPeak")))
"""
_PROBE_SECONDS: Final = 120.0
_SECONDS: Final = {"us": 1e-6, "ms": 1e-3, "": 1e-3, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_MEGABYTES: Final = {"b": 1 / _MB, "k": 1 / 1024, "m": 1, "": 1, "g": 1 << 10, "t": 1 << 20, "p": 1 << 30}
_EXCLUDING: Final = tuple(f"spark.excludeOnFailure.{part}enabled" for part in ("", "application.", "taskAndStage."))
_PLACEHOLDER_ALLOCATORS: Final = re.compile(r"(.*\.)?(statefulset|deployment)(podsallocator)?", re.IGNORECASE)


def refuse_unusable(conf: SparkConf, python: str, *, local: bool) -> None:
    """Refuse settings of a session that cannot work.

    Args:
        conf: the session's settings.
        python: what workers are started with, ``SparkContext.pythonExec``.
        local: True for ``local[N]``, where the executor is the driver.

    Raises:
        ConfigException: names the setting, why it does not work, and the remedy.
    """
    if _is_on(conf, "spark.speculation"):
        raise ConfigException("spark.speculation=true would run one task's writes twice; set it to false")
    _refuse_cluster_mode(conf)
    _refuse_small_workers(conf)
    if (conf.get("spark.python.use.daemon") or "true").lower() == "false":
        raise ConfigException(
            "Spark setting spark.python.use.daemon=false starts a Python for each step of each micro-batch, which has "
            "to import everything anew: Spark gives up waiting for it, and nothing is processed. Leave it out"
        )
    if local:
        # On a cluster only the executors' hosts know; the first job there says it (``no_python``).
        if shutil.which(python) is None:
            raise ConfigException(no_python(python))
        return
    for key in _EXCLUDING:
        if _is_on(conf, key):
            raise ConfigException(
                f"Spark setting {key}=true keeps jobs from an executor on which one has failed, while each job here "
                "belongs to the executor that has its state: the job would wait for ever. Set it to false; failed "
                "batches are run again without it (max.batch.retries)"
            )
    _refuse_short_waits(conf)
    allocator = conf.get("spark.kubernetes.allocation.pods.allocator") or "direct"
    if (conf.get("spark.master") or "").startswith("k8s") and _PLACEHOLDER_ALLOCATORS.fullmatch(allocator):
        raise ConfigException(
            f"Spark setting spark.kubernetes.allocation.pods.allocator={allocator} gives all executors one command "
            "line, with a placeholder for --executor-id, by which a worker finds out where it is: every job would be "
            "refused as misplaced. Set it to direct, Spark's default"
        )


def _refuse_cluster_mode(conf: SparkConf) -> None:
    """Refuse a driver that spark-submit has started in the cluster; on Kubernetes as a client, once more."""
    deployed = (conf.get("spark.submit.deployMode") or "client").lower() == "cluster"
    if deployed or _is_on(conf, "spark.kubernetes.submitInDriver"):
        raise ConfigException(
            "the script was submitted with --deploy-mode cluster: there it is a child of a JVM that gets the signal to "
            "end in its place and takes Spark away at once, so that each stop would be a kill. Run the script itself, "
            "python pipeline.py, or spark-submit --deploy-mode client, on a host or in a pod that executors can reach"
        )


def _refuse_short_waits(conf: SparkConf) -> None:
    wait = conf.get("spark.locality.wait") or "3s"
    for key in ("spark.locality.wait.process", "spark.locality.wait.node"):
        own = conf.get(key)
        if own and _in_units(own, _SECONDS) < _in_units(wait, _SECONDS):
            raise ConfigException(
                f"Spark setting {key}={own} overrides spark.locality.wait={wait}: jobs would be started on another "
                "executor than the one that has their state, and be refused there. Leave it out, and set "
                "spark.locality.wait=10m"
            )


def _refuse_small_workers(conf: SparkConf) -> None:
    given = conf.get("spark.executor.pyspark.memory")
    if not given or not sys.platform.startswith("linux"):
        # Elsewhere Spark does not limit it.
        return
    cores = int(conf.get("spark.executor.cores") or 1)
    each, needed = int(_in_units(given, _MEGABYTES)) // cores, needed_megabytes()
    # Spark takes 0 for no limit.
    if 0 < each < needed:
        raise ConfigException(
            f"Spark setting spark.executor.pyspark.memory={given} limits the address space of each Python worker to "
            f"{each} MB (it is divided by spark.executor.cores={cores}); one needs {needed} MB, of which "
            f"{needed - _WORK_MB} for imports, and the size of its stores on top. Leave it out, bound the container, "
            f"or set it to at least {needed * cores}m and the size of an executor's stores"
        )


@functools.cache
def needed_megabytes() -> int:
    """Return the address space, MB, that a Python worker needs before its stores; measured in a child, in seconds."""
    try:
        child = subprocess.run(
            [sys.executable, "-c", _PROBE], capture_output=True, text=True, check=True, timeout=_PROBE_SECONDS
        )
    except subprocess.SubprocessError as error:
        # Nobody is refused on a guess.
        log.debug("what a worker needs could not be measured: %s", error)
        return 0
    return math.ceil(int(child.stdout) / 1024) + _WORK_MB


def no_python(program: str) -> str:
    """Say that a Python that workers are to be started with is not there, and which settings name it."""
    return (
        f"Spark's Python workers cannot be started: there is no program {program!r}. With spark-submit "
        "spark.pyspark.python names it, else PYSPARK_PYTHON in the environment in which the session is made "
        "(spark.pyspark.driver.python and PYSPARK_DRIVER_PYTHON are for the script alone). Set it to a Python that has "
        f"sparkrelay, on each host; the script runs {sys.executable}"
    )


def no_daemon(said: str, job: str) -> str:
    """Say that the Python of workers could not become our daemon: it lacks sparkrelay, or something that it needs.

    Args:
        said: the last line of what that Python said.
        job: the Spark job that met it; that of an executor names it.
    """
    return (
        f"Spark's Python workers cannot be started, as the Spark job {job!r} has found. Their Python said: {said!r}. "
        f"It is another one than the script's, {sys.executable}, or other packages are installed on that host. "
        "Install sparkrelay there by the same path, with the versions that the script has; or name a Python that has "
        "it by PYSPARK_PYTHON before the session is made (spark.pyspark.python with spark-submit); or ship one with "
        "spark.archives"
    )


def _in_units(text: str, units: Mapping[str, float]) -> float:
    """Read a number with a unit as Spark does, such as ``10m`` or ``2g``."""
    match = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
    if match is not None:
        for unit in (match[2], match[2].removesuffix("b")):
            if unit in units:
                return int(match[1]) * units[unit]
    raise ConfigException(f"{text!r} is not a number with one of Spark's units")


def _is_on(conf: SparkConf, key: str) -> bool:
    return (conf.get(key) or "false").lower() == "true"
