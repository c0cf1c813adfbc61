#!/bin/bash
# Before Kubernetes ends an executor's pod: have its JVM decommission itself, and wait until it has.
set -euo pipefail

for process in /proc/[0-9]*; do
    if tr '\0' '\n' < "$process/cmdline" 2> /dev/null | grep -qx -- --executor-id; then
        pid=${process#/proc/}
        kill -s PWR "$pid"
        while [[ -e /proc/$pid ]]; do
            sleep 0.2
        done
    fi
done
