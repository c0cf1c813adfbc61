import subprocess
import sys

from bench.processes import ROLES, CpuClock, MemoryPeak, memory_mb

CHILD = "import sys; data = bytearray(64 << 20); print('ready', flush=True); sys.stdin.read()"
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {CHILD!r}])"


def test_memory_is_told_apart_by_role_and_cpu_is_of_the_whole_tree():
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        memory = memory_mb(process.pid)
        clock = CpuClock(process.pid)
        busy = clock.seconds()
        process.stdin.close()
        process.wait()
    assert set(memory) == set(ROLES)
    assert memory["workers"][0] > 64
    assert memory["driver"][0] > 1
    assert memory["jvm"] == (0.0, 0.0)
    assert memory["workers"][1] <= memory["workers"][0]
    assert busy > 0
    # What has ended still counts.
    assert clock.seconds() == busy


def test_the_most_memory_is_that_of_all_processes_together():
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        with MemoryPeak(process.pid, every_s=60.0) as peak:
            sizes = memory_mb(process.pid).values()
            process.stdin.close()
            process.wait()
    # What it has ended with is less, and does not count.
    assert peak.rss_mb > 64
    assert abs(peak.rss_mb - sum(rss for rss, _ in sizes)) < 16
    assert 0 < peak.pss_mb <= peak.rss_mb
    assert peak.pss_mb == sum(peak.roles_mb.values())
    assert peak.roles_mb["workers"] > peak.roles_mb["driver"]
