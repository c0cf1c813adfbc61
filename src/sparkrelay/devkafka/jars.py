"""The jars of Apache Kafka, resolved by Apache Ivy.

Spark needs Java anyway, and PySpark ships Ivy, so a real Kafka costs the user no installation: Ivy resolves the broker
once from its configured repositories into a cache outside any project. Refused: a Docker image (not everybody may run
one), a tarball (a host name in our code, no checksums), and importing PySpark to find its jars (two seconds, and
forbidden below the runtime).

``SPARKRELAY_IVY_SETTINGS`` names an Ivy settings file, such as one with a mirror; ``JAVA_TOOL_OPTIONS`` sets proxies,
as for every JVM.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from sparkrelay.devkafka.folders import locked, make_own, require_own
from sparkrelay.devkafka.process import run_own
from sparkrelay.errors import DevKafkaException
from sparkrelay.java import require_java
from sparkrelay.own_files import cache_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

#: The default version.
KAFKA_VERSION = "4.3.1"
_SCALA_VERSION = "2.13"
# The broker logs through slf4j 1.7, but its Maven module has no back end, and without one the log is empty.
_SLF4J_VERSION = "1.7.36"
_RESOLVE_TIMEOUT_S = 600
_REMEDY = "Check the network, or set SPARKRELAY_IVY_SETTINGS to an Ivy settings file that names a mirror you can reach."

_OTHER_CACHE = "Set XDG_CACHE_HOME to a folder that only this user may write to."

_BROKER = f"kafka_{_SCALA_VERSION}"

_IVY_MODULE = """<ivy-module version="2.0">
  <info organisation="sparkrelay" module="devkafka"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="org.apache.kafka" name="{artifact}" rev="{kafka}" conf="default->default"/>
    <dependency org="org.slf4j" name="slf4j-simple" rev="{slf4j}" conf="default->default"/>
  </dependencies>
</ivy-module>
"""


def kafka_classpath(version: str = KAFKA_VERSION, artifact: str = _BROKER) -> str:
    """Return the class path of the broker or another module of Kafka, such as ``kafka-tools``.

    Its jars (the broker's: 45 MB) are resolved at first use, which takes about half a minute. Safe in concurrent
    processes: one resolves, the others wait, and one that dies leaves nothing that looks finished.

    Raises:
        DevKafkaException: The jars cannot be resolved; the message ends with Ivy's output.
    """
    libs = cache_folder() / f"{'kafka' if artifact == _BROKER else artifact}-{version}"
    make_own(libs.parent, _OTHER_CACHE, by_root=True)
    if not libs.is_dir():
        with locked(libs.with_name(f"{libs.name}.lock")):
            if not libs.is_dir():
                _resolve(artifact, version, libs)
    require_own(libs, _OTHER_CACHE, by_root=True)
    return str(libs / "*")


def _resolve(artifact: str, version: str, libs: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=f".{libs.name}-", dir=libs.parent) as folder:
        work = Path(folder)
        try:
            code, output = _run_ivy(work, _IVY_MODULE.format(artifact=artifact, kafka=version, slf4j=_SLF4J_VERSION))
        except subprocess.TimeoutExpired as error:
            raise DevKafkaException(
                f"Resolving Apache Kafka {version} with Ivy took more than {_RESOLVE_TIMEOUT_S} s. {_REMEDY}"
            ) from error
        if code or not list(work.glob(f"libs/{artifact}-*.jar")):
            raise DevKafkaException(
                f"Apache Kafka {version} ({artifact}) could not be resolved by Ivy (exit {code}). {_REMEDY} "
                f"Ivy said:\n{output}"
            )
        (work / "libs").rename(libs)  # atomic: the folder is complete or missing


def _run_ivy(work: Path, module: str, types: Sequence[str] = ("jar", "bundle")) -> tuple[int, str]:
    """Have Ivy retrieve a module's dependencies into ``libs`` of a folder; return its exit code and output."""
    (work / "ivy.xml").write_text(module)
    settings = os.environ.get("SPARKRELAY_IVY_SETTINGS")
    command = [require_java(), "-jar", str(_ivy_jar()), "-warn"]
    command += ["-settings", settings] if settings else []
    command += ["-ivy", str(work / "ivy.xml"), "-confs", "default", "-types", *types]
    command += ["-cache", str(work / "cache")]
    command += ["-retrieve", str(work / "libs" / "[artifact]-[revision].[ext]")]
    return run_own(command, timeout_s=_RESOLVE_TIMEOUT_S)


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise DevKafkaException("PySpark is not installed, and its Ivy fetches Kafka. Run: pip install 'pyspark>=4.3'")
    jars = sorted((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))
    if not jars:
        raise DevKafkaException(
            f"{Path(spec.origin).parent / 'jars'} has no ivy-*.jar. "
            "Reinstall PySpark: pip install --force-reinstall pyspark"
        )
    return jars[-1]
