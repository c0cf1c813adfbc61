"""YARN on loopback: a resource manager and node managers of Hadoop in one JVM, whose containers are real processes.

PySpark brings Hadoop's client. Ivy fetches the servers of the same version, once.
"""

import re
import tempfile
from contextlib import suppress
from pathlib import Path

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway
from tests import evidence
from tests.waiting import LONG, wait_until

from sparkrelay.devkafka import jars
from sparkrelay.devkafka.folders import locked
from sparkrelay.devkafka.process import spawn_bound
from sparkrelay.java import require_java
from sparkrelay.own_files import cache_folder

HOST = "127.0.0.1"

_SPARK_JARS = Path(pyspark.__file__).parent / "jars"
_VERSION = next(_SPARK_JARS.glob("hadoop-client-api-*.jar")).stem.rpartition("-")[2]
#: What the servers' jar needs beside the client's.
_MODULES = (
    ("org.apache.hadoop", "hadoop-client-minicluster", _VERSION),
    ("org.junit.jupiter", "junit-jupiter-api", "5.13.4"),
    ("ch.qos.reload4j", "reload4j", "1.2.22"),
    ("org.bouncycastle", "bcprov-jdk18on", "1.82"),
    ("org.bouncycastle", "bcpkix-jdk18on", "1.82"),
    ("org.bouncycastle", "bcutil-jdk18on", "1.82"),
)
_DEPENDENCY = '<dependency org="{}" name="{}" rev="{}" conf="default->master" transitive="false"/>'
_IVY_MODULE = """<ivy-module version="2.0">
  <info organisation="sparkrelay" module="yarn"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>{}</dependencies>
</ivy-module>
"""

_SETTINGS = {
    "fs.defaultFS": "file:///",
    "yarn.nodemanager.resource.memory-mb": "4096",
    "yarn.nodemanager.resource.cpu-vcores": "4",
    "yarn.scheduler.minimum-allocation-mb": "256",
    "yarn.scheduler.capacity.root.queues": "default",
    "yarn.scheduler.capacity.root.default.capacity": "100",
    "yarn.scheduler.capacity.maximum-am-resource-percent": "0.5",
    # A host that is short of address space or disk is not what is tested.
    "yarn.nodemanager.vmem-check-enabled": "false",
    "yarn.nodemanager.pmem-check-enabled": "false",
    "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
}


class YarnCluster:
    """A cluster with two nodes.

    Args:
        folder: configuration, logs, and the containers' working directories.
    """

    NODES = 2

    def __init__(self, folder):
        self._folder = folder
        self._log = folder / "yarn.log"
        evidence.watch(self._log)
        evidence.watch_all(folder, "target/**/container_*/std???")
        command = [require_java(), "-Xmx700m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        command += ["-cp", f"{_servers()}:{_SPARK_JARS}/*", "py4j.GatewayServer", "0"]
        with self._log.open("wb") as log:
            # However the test run ends, it ends with it.
            self._process = spawn_bound(command, log=log, cwd=folder)
        wait_until(self._port, "YARN's JVM does not start")
        self._gateway = JavaGateway(gateway_parameters=GatewayParameters(port=self._port()))
        self._cluster = None

    def start(self):
        """Start the servers; return when each node is known to the resource manager."""
        hadoop = self._gateway.jvm.org.apache.hadoop
        conf = hadoop.yarn.conf.YarnConfiguration()
        for key, value in {**_SETTINGS, "hadoop.tmp.dir": str(self._folder / "hadoop")}.items():
            conf.set(key, value)
        self._cluster = hadoop.yarn.server.MiniYARNCluster("yarn", 1, self.NODES, 1, 1)
        self._cluster.init(conf)
        self._cluster.start()
        assert self._cluster.waitForNodeManagersToConnect(int(LONG * 1000)), self.tail()
        self._write("yarn-site.xml", self._cluster.getConfig())
        core = hadoop.conf.Configuration(False)
        core.set("fs.defaultFS", _SETTINGS["fs.defaultFS"])
        self._write("core-site.xml", core)
        return self

    @property
    def environment(self):
        """What a driver's environment has."""
        return {"HADOOP_CONF_DIR": str(self._folder / "conf"), "SPARK_HOME": str(_SPARK_JARS.parent)}

    @property
    def spark(self):
        """The settings of a session on it."""
        return {
            "spark.master": "yarn",
            "spark.driver.host": HOST,
            "spark.driver.bindAddress": HOST,
            "spark.yarn.jars": f"local:{_SPARK_JARS}/*",
            "spark.yarn.stagingDir": (self._folder / "staging").as_uri(),
            "spark.yarn.am.memory": "512m",
            "spark.executor.instances": str(self.NODES),
            "spark.executor.cores": "1",
            "spark.executor.memory": "1g",
        }

    def executors(self):
        """Return the executors' JVMs: executor id -> pid."""
        found = {}
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdecimal() and (entry / "cwd").resolve().is_relative_to(self._folder):
                    command = (entry / "cmdline").read_bytes().decode().split("\0")
                    if "--executor-id" in command and command[0].endswith("java"):
                        found[command[command.index("--executor-id") + 1]] = int(entry.name)
        return found

    def tail(self):
        lines = self._log.read_text(errors="replace").splitlines()
        return f"--- {self._log}\n" + "\n".join(lines[-40:])

    def close(self):
        try:
            if self._cluster is not None:
                self._cluster.stop()
        finally:
            with suppress(Exception):
                self._gateway.shutdown()
            self._process.kill()
            self._process.wait(LONG)

    def _port(self):
        """Return the port of the JVM's gateway for Python, which it logs first; None before that."""
        assert self._process.poll() is None, self.tail()
        found = re.search(r"^(\d+)$", self._log.read_text(errors="replace"), re.MULTILINE)
        return found and int(found[1])

    def _write(self, name, configuration):
        folder = self._folder / "conf"
        folder.mkdir(exist_ok=True)
        out = self._gateway.jvm.java.io.FileOutputStream(str(folder / name))
        configuration.writeXml(out)
        out.close()


def _servers():
    """Return the class path of Hadoop's servers, fetching them the first time (70 MB)."""
    home = cache_folder() / f"hadoop-minicluster-{_VERSION}"
    home.parent.mkdir(parents=True, exist_ok=True)
    with locked(home.with_name(f"{home.name}.lock")):
        if not home.is_dir():
            with tempfile.TemporaryDirectory(prefix=f".{home.name}-", dir=home.parent) as work:
                module = _IVY_MODULE.format("".join(_DEPENDENCY.format(*one) for one in _MODULES))
                _, output = jars._run_ivy(Path(work), module)
                assert len(list(Path(work).glob("libs/*.jar"))) == len(_MODULES), output
                (Path(work) / "libs").rename(home)
    return f"{home}/*"
