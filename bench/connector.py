"""The jars of Spark's own Kafka connector, for the peer.

They are fetched as devkafka fetches the broker's: once, by the Ivy that PySpark ships, into a cache outside the
project. Each version is named and nothing is followed: the connector's own dependencies ask for versions that not
every registry has, and Spark brings the rest.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pyspark

from sparkrelay.java import require_java
from sparkrelay.own_files import cache_folder

__all__ = ["CONNECTOR", "connector_jars"]

#: (organisation, module, revision). No connector 4.3.0 was published when this was written; 4.2.0 runs on Spark 4.3.
CONNECTOR = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.1.0-preview1"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)
_TIMEOUT_S = 600

_MODULE = """<ivy-module version="2.0">
  <info organisation="sparkrelay" module="bench"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    {dependencies}
  </dependencies>
</ivy-module>
"""
_DEPENDENCY = '<dependency org="{}" name="{}" rev="{}" conf="default->default" transitive="false"/>'


def connector_jars() -> list[Path]:
    """Return the connector's jars, resolving them the first time.

    Raises:
        RuntimeError: they could not be resolved; the message ends with what Ivy said.
    """
    folder = cache_folder() / f"spark-kafka-{CONNECTOR[0][2]}"
    wanted = [folder / f"{name}-{revision}.jar" for _, name, revision in CONNECTOR]
    if not all(jar.exists() for jar in wanted):
        _resolve(folder)
    return wanted


def _resolve(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    ivy = max((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    settings = os.environ.get("SPARKRELAY_IVY_SETTINGS")
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        module = Path(work) / "ivy.xml"
        module.write_text(_MODULE.format(dependencies="\n    ".join(_DEPENDENCY.format(*jar) for jar in CONNECTOR)))
        command = [require_java(), "-jar", str(ivy), "-warn"]
        command += ["-settings", settings] if settings else []
        command += ["-ivy", str(module), "-confs", "default", "-types", "jar", "bundle", "-cache", f"{work}/cache"]
        command += ["-retrieve", str(folder / "[artifact]-[revision].[ext]")]
        run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
    if run.returncode:
        raise RuntimeError(
            f"Spark's Kafka connector {CONNECTOR[0][2]} could not be resolved by Ivy (exit {run.returncode}). Check "
            "the network, or set SPARKRELAY_IVY_SETTINGS to an Ivy settings file that names a mirror you can reach. "
            f"Ivy said:\n{(run.stdout + run.stderr)[-2000:].strip()}"
        )
