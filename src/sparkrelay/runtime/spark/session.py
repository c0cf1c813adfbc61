"""Spark sessions for the runtime.

``spark_session`` builds a session with settings whose effect was measured (docs/internals/spark-settings.md);
``check_session`` checks a user's own session: it refuses settings that cannot work and warns of costly ones.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from sparkrelay.errors import StreamsException
from sparkrelay.java import require_java
from sparkrelay.observe.logs import WORKERS_VARIABLE
from sparkrelay.own_files import keep_others_from_writing
from sparkrelay.runtime.contract.socket_folders import SPARK_DIR
from sparkrelay.runtime.spark.class_archive import archive_option
from sparkrelay.runtime.spark.java_options import added, small_heap
from sparkrelay.runtime.spark.spark_logs import silence_failed_tasks
from sparkrelay.runtime.spark.unusable_session import is_on, refuse_unusable
from sparkrelay.runtime.spark.worker_sockets import (
    UNIX_SOCKETS,
    jvms_sockets_too_long,
    require_short_folder,
    socket_settings,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger(__name__)

_MINIMUM_SPARK = (4, 3)
#: For resident jobs, one per leg and stream thread.
_SPARE_SLOTS = 8

_HIDDEN = "it places jobs through the driver's JVM, which Spark Connect hides"
#: Any of these makes PySpark use Spark Connect.
_REMOTE = ("spark.remote", "SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
_API = ("spark.api.mode", "SPARK_API_MODE")

_ZONE = "spark.sql.session.timeZone"
_DAEMON = "spark.python.daemon.module"
_PIPELINED = "spark.python.udf.pipelined.enabled"

#: Setting -> (value, cost of leaving it out; empty for no warning).
RECOMMENDED: Mapping[str, tuple[str, str]] = {
    UNIX_SOCKETS: ("true", "40 ms more for each Python step of each micro-batch"),
    _DAEMON: ("sparkrelay.runtime.worker.daemon", "seconds more until the first micro-batch"),
    _PIPELINED: ("true", "a Spark job for each micro-batch, however small, of pipelines with steps after agg()"),
    "spark.scheduler.mode": ("FAIR", "restoring tasks delay running ones"),
    "spark.scheduler.allocation.file": (str(Path(__file__).with_name("pools.xml")), ""),
    "spark.sql.execution.arrow.maxRecordsPerBatch": ("1000000", ""),
    "spark.locality.wait": ("10m", ""),
    "spark.task.maxFailures": ("1", ""),
    "spark.deploy.maxExecutorRetries": ("-1", ""),
    "spark.ui.showConsoleProgress": ("false", ""),
    "spark.ui.retainedJobs": ("50", ""),
    "spark.ui.retainedStages": ("50", ""),
    "spark.sql.ui.retainedExecutions": ("20", ""),
    _ZONE: ("UTC", ""),
}

#: Setting -> (harmful value, perhaps set for a whole cluster; its effect here).
_HARMFUL: Mapping[str, tuple[str, str]] = {
    "spark.sql.timestampType": (
        "TIMESTAMP_NTZ",
        "'timestamp' in a schema is then a time without a zone, and text with a 'Z' cannot be decoded. Leave it out",
    ),
    "spark.python.worker.reuse": (
        "false",
        "each Python step of a micro-batch starts a worker, which reopens stores and connections. Leave it out",
    ),
    "spark.sql.execution.pyspark.udf.tracebackWithLocals.enabled": (
        "true",
        "errors of Python steps, and so the logs, show the values of variables, including records. Leave it out",
    ),
}


def spark_session(app_name: str, **conf: Any) -> SparkSession:
    """Return a session with the recommended settings.

    Args:
        app_name: the application's name in Spark's UI.
        **conf: more settings, which take precedence; write dots as double underscores (``spark__master="local[2]"``),
            or pass a dict with dotted keys by ``**{"spark.master": "local[2]"}``.

    Raises:
        ConfigException: the path of the folder for Spark's Unix sockets is too long.
        StreamsException: Java or Spark is missing or too old, no folder can hold Spark's Unix sockets, or it would be a
            session of Spark Connect.
    """
    _refuse_connect({key.replace("__", "."): str(value) for key, value in conf.items()} | os.environ)
    require_java()
    if str(conf.get("spark__master") or conf.get("spark.master") or "").startswith("local-cluster"):
        # Executors are started from an installation of Spark, such as pip's.
        os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))
    # Workers must be able to import what the driver imports.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name)
    settings = {key: value for key, (value, _) in RECOMMENDED.items()}
    settings |= {key.replace("__", "."): str(value) for key, value in conf.items()}
    # Before the JVM starts: it would keep a refused setting for the next attempt.
    require_short_folder(settings.get(SPARK_DIR, ""))
    # Workers import sparkrelay: from a checkout, they need the same path.
    if "PYTHONPATH" in os.environ:
        settings.setdefault("spark.executorEnv.PYTHONPATH", os.environ["PYTHONPATH"])
    if WORKERS_VARIABLE in os.environ:
        settings.setdefault(f"spark.executorEnv.{WORKERS_VARIABLE}", os.environ[WORKERS_VARIABLE])
    # Spark's Unix sockets trust every client, and the JVM keeps its initial umask.
    umask = keep_others_from_writing()
    try:
        with added(archive_option(), small_heap(settings | os.environ)):
            settings |= _spare_slots(settings)
            settings |= socket_settings(settings)
            for key, value in settings.items():
                builder = builder.config(key, value)
            session = builder.getOrCreate()
    finally:
        os.umask(umask)
    silence_failed_tasks(session)
    return session


def _refuse_connect(settings: Mapping[str, str]) -> None:
    """Refuse to make a session of Spark Connect, by the session's settings and the environment's variables."""
    found = [key for key in _REMOTE if key in settings]
    found += [key for key in _API if settings.get(key, "").lower() == "connect"]
    if found:
        key = found[0]
        raise StreamsException(
            f"{key}={settings[key]} selects Spark Connect, but SparkRelay needs a classic session: {_HIDDEN}. "
            f"Leave {key} out, set spark.master, and run the script on the driver's host"
        )


def _spare_slots(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings with which a local session runs more concurrent tasks than it has cores.

    A resident job holds a slot per leg and mostly waits; with one slot per core, none would be left for other jobs. The
    default parallelism remains the number of cores.
    """
    if SparkContext._active_spark_context is not None:
        return {}
    conf = SparkConf().setAll(list(settings.items()))
    # Only the JVM knows a master set by spark-submit or a file.
    SparkContext._ensure_initialized(conf=conf)
    found = re.fullmatch(
        r"local(?:\[(\d+|\*)(,\s*\d+)?\])?", settings.get("spark.master") or SparkConf().get("spark.master", "")
    )
    if not found:
        return {}
    cores = _processors() if found[1] == "*" else int(found[1] or 1)
    return {
        "spark.master": f"local[{cores + _SPARE_SLOTS}{found[2] or ''}]",
        "spark.default.parallelism": settings.get("spark.default.parallelism", str(cores)),
    }


def _processors() -> int:
    jvm: Any = SparkContext._jvm
    return int(jvm.java.lang.Runtime.getRuntime().availableProcessors())


def check_session(spark: SparkSession) -> None:
    """Refuse an unusable session; warn of each costly setting.

    Raises:
        ConfigException: with a setting, jobs would never run, or run twice.
        StreamsException: Spark is too old, or the session is one of Spark Connect.
    """
    version = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if version < _MINIMUM_SPARK:
        raise StreamsException(
            f"SparkRelay needs PySpark 4.3 or newer; this is {pyspark.__version__}. pip install 'pyspark>=4.3'"
        )
    if not hasattr(spark, "_jsparkSession"):
        raise StreamsException(
            f"SparkRelay needs a classic Spark session, not a {type(spark).__module__}.{type(spark).__qualname__}: "
            f"{_HIDDEN}. Build it with sparkrelay.spark_session(), or with SparkSession.builder.master(...) instead of "
            ".remote(...)."
        )
    # At DEBUG it logs every plan, with the passwords of workers' connections, unless the user set its level by name.
    if logging.getLogger("py4j").level == logging.NOTSET:
        logging.getLogger("py4j").setLevel(logging.INFO)
    conf = spark.sparkContext.getConf()
    local = bool(spark.sparkContext._jsc.sc().isLocal())
    refuse_unusable(conf, spark.sparkContext.pythonExec, local=local)
    for key, (wanted, cost) in RECOMMENDED.items():
        found = conf.get(key)
        if key == UNIX_SOCKETS and jvms_sockets_too_long(conf):
            continue
        if cost and (found or "").lower() != wanted.lower():
            log.warning(
                "Spark setting %s is %s, not %s: %s. sparkrelay.spark_session() builds a session with it.",
                key,
                found,
                wanted,
                cost,
            )
    for key, (harmful, what) in _HARMFUL.items():
        # Settings of SQL may be set for this session only.
        found = spark.conf.getAll.get(key) or conf.get(key) or ""
        if found.lower() == harmful.lower():
            log.warning("Spark setting %s is %s: %s.", key, found, what)
    _check_zone(spark)
    if local:
        return
    if is_on(conf, "spark.dynamicAllocation.enabled") and not conf.get("spark.dynamicAllocation.minExecutors"):
        log.warning(
            "Spark setting spark.dynamicAllocation.enabled is true, and spark.dynamicAllocation.minExecutors is not "
            "set: executors without input are released, and no new ones are requested when the lag grows. Set it to "
            "the number of executors needed at peak load."
        )
    wait = conf.get("spark.locality.wait") or "3s"
    if wait != RECOMMENDED["spark.locality.wait"][0]:
        log.warning(
            "Spark setting spark.locality.wait is %s, not 10m: a job that waits longer for its executor is started on "
            "another one, where it is refused and run again.",
            wait,
        )


def local_slots(spark: SparkSession) -> int | None:
    """Return the number of concurrent tasks of a local session, if its master names one."""
    found = re.fullmatch(r"local\[(\d+)(,.*)?\]", spark.sparkContext.master or "")
    return int(found[1]) // int(_setting(spark, "spark.task.cpus") or 1) if found else None


def missing_for_resident_jobs(spark: SparkSession, steps: int) -> str | None:
    """Return the setting that prevents a leg of so many Python steps from using a resident job, or None.

    Only our own worker daemon flushes buffered rows. And by default Spark reads the output of a middle step on the
    thread that waits for the input of the next micro-batch.
    """
    needed = (_DAEMON, _PIPELINED) if steps > 2 else (_DAEMON,)
    missing = [f"{key} is not {RECOMMENDED[key][0]}" for key in needed if _setting(spark, key) != RECOMMENDED[key][0]]
    return missing[0] if missing else None


def _setting(spark: SparkSession, key: str) -> str | None:
    """Return a setting of the context, without ``getConf()``, which copies all of them."""
    return spark.sparkContext._conf.get(key)


def _check_zone(spark: SparkSession) -> None:
    """Warn if the zone is the host's: the next owner of a task may have another one."""
    zone = spark.conf.get(_ZONE) or ""
    if _ZONE in spark.conf.getAll or zone.upper().removeprefix("ETC/") in {"UTC", "GMT", "Z", "UCT"}:
        return
    log.warning(
        "Spark setting %s is not set: to_date() and hour() use this host's zone, %s. An instance on a host with "
        "another zone would compute other values, and split the groups of a task that moves there differently. Set it "
        "to UTC, or to the same zone everywhere.",
        _ZONE,
        zone,
    )
