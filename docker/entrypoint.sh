#!/bin/bash
# What a container of the image runs, under its init process: a command as it is, or, for Spark on Kubernetes, an executor.
set -euo pipefail

# The image's compiled kernels, where the root is read-only and others may have to be written.
if [[ -n ${NUMBA_CACHE_DIR-} && -d ${SPARKRELAY_KERNELS-} && $NUMBA_CACHE_DIR != "$SPARKRELAY_KERNELS" ]]; then
    if [[ ! -e $NUMBA_CACHE_DIR ]] && mkdir -p "$NUMBA_CACHE_DIR"; then
        cp -Rp "$SPARKRELAY_KERNELS/." "$NUMBA_CACHE_DIR"
    fi
fi

if [[ ${1-} != executor ]]; then
    exec "$@"
fi

# What Spark's driver says to its executors is in their environment: options of the JVM one a variable, by numbers.
options=()
while IFS= read -r name; do
    options+=("${!name}")
done < <(compgen -A variable SPARK_JAVA_OPT_ | sort -t _ -k 4 -n)

java=${JAVA_HOME:+$JAVA_HOME/bin/}java
spark=${SPARK_HOME:-$(dirname "$(readlink -f "$0")")/spark}
exec "$java" "${options[@]}" \
    "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
    -cp "${SPARK_CLASSPATH:+$SPARK_CLASSPATH:}$spark/jars/*" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" \
    --executor-id "$SPARK_EXECUTOR_ID" \
    --cores "$SPARK_EXECUTOR_CORES" \
    --app-id "$SPARK_APPLICATION_ID" \
    --hostname "$SPARK_EXECUTOR_POD_IP" \
    --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
    --podName "$SPARK_EXECUTOR_POD_NAME"
