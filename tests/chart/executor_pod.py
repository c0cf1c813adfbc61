"""The pod that Spark itself would make of an executor, from the settings and the template that the chart writes.

A program: reads `spark-defaults.conf` and the template in a folder, prints the pod as JSON. No API server is asked for
anything.
"""

import json
import sys
from pathlib import Path

from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway


def main():
    folder = Path(sys.argv[1])
    gateway = launch_gateway(SparkConf().set("spark.master", "local[1]"))
    jvm = gateway.jvm
    spark, kubernetes = jvm.org.apache.spark, jvm.org.apache.spark.deploy.k8s
    conf = spark.SparkConf(False)
    for line in (folder / "spark-defaults.conf").read_text().splitlines():
        if line and not line.startswith("#"):
            key, _, value = line.partition(" ")
            conf.set(key, value)
    conf.set("spark.kubernetes.executor.podTemplateFile", str(folder / "executor.yaml"))
    # As SparkContext does.
    entries = getattr(getattr(jvm, "org.apache.spark.internal.config.package$"), "MODULE$")
    host = entries.DRIVER_HOST_ADDRESS()
    conf.set(host, conf.get(host))
    nobody = getattr(getattr(jvm, "scala.None$"), "MODULE$")
    executor = kubernetes.KubernetesConf.createExecutorConf(conf, "7", "spark-app", nobody, 0)
    client = jvm.io.fabric8.kubernetes.client.KubernetesClientBuilder().build()
    profiles = getattr(getattr(jvm, "org.apache.spark.resource.ResourceProfile$"), "MODULE$")
    builder = spark.scheduler.cluster.k8s.KubernetesExecutorBuilder()
    security = spark.SecurityManager(conf, nobody, entries.AUTH_SECRET_FILE_EXECUTOR())
    made = builder.buildFromFeatures(executor, security, client, profiles.getOrCreateDefaultProfile(conf)).pod()
    serialization = jvm.io.fabric8.kubernetes.client.utils.Serialization
    answer = json.loads(serialization.asJson(made.pod()))
    answer["spec"].setdefault("containers", []).insert(0, json.loads(serialization.asJson(made.container())))
    print(json.dumps(answer))
    gateway.shutdown()


if __name__ == "__main__":
    main()
