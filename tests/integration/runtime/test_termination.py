"""SIGTERM of an instance that its script does not wait for yet, as process 1 of a container where that can be made."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.short_spark import SHORT_LIVED

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

SCRIPT = """
import sys, threading, time
from sparkrelay import Json, KafkaStreams, StreamsBuilder, String, spark_session

silent, brokers, source, sink, state_dir = sys.argv[1:]
builder = StreamsBuilder()
builder.stream(source, value=Json("shop string")).to(sink)
spark = spark_session("termination", **{"spark.master": "local[1]", **SHORT_LIVED})
config = {"application.id": source, "state.dir": state_dir}

def begun():
    names = {thread.name for thread in threading.enumerate()}
    return {name for name in names if "sparkrelay" in name or source in name}

streams = KafkaStreams(builder.build(), {**config, "bootstrap.servers": silent}, spark=spark)
before = begun()
try:
    streams.start()
except SystemExit as caught:
    print("start() ended with", caught.code, flush=True)
streams.stop()
while begun() - before:  # what the signal began
    time.sleep(0.05)
print("nothing is left of it:", streams.state, flush=True)

with KafkaStreams(builder.build(), {**config, "bootstrap.servers": brokers}, spark=spark) as streams:
    streams.start()
    try:
        print("started", flush=True)
        time.sleep(600)
    except SystemExit as caught:
        print("the script ended with", caught.code, flush=True)
        raise
    finally:
        threading.Thread(target=lambda: (streams.stop(), print(streams.state, flush=True))).start()
"""


@pytest.fixture
def as_process_1():
    """`as_process_1(*command)` starts a process, as the first one of a PID namespace if that can be made.

    It returns what was started, and whether the process is a child of that, in a namespace of its own.
    """
    made = []

    def start(*command):
        for flags in (["-pf", "--mount-proc"], ["-rpf", "--mount-proc"], None):
            if (
                flags is None
                or subprocess.run(["unshare", *flags, "true"], capture_output=True, check=False).returncode == 0
            ):
                break
        own = [] if flags is None else ["unshare", *flags, "--kill-child"]
        process = subprocess.Popen([*own, *command], stdout=subprocess.PIPE, text=True)
        made.append(process)
        return process, bool(own)

    yield start
    for process in made:
        process.kill()
        process.wait()
        process.stdout.close()


def test_sigterm_ends_an_instance_that_starts_or_is_not_waited_for(as_process_1, kafka, make_topic, tmp_path):
    source, sink = make_topic("terminated"), make_topic("copied")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        script = SCRIPT.replace("SHORT_LIVED", repr(SHORT_LIVED))
        servers = f"127.0.0.1:{silent.getsockname()[1]}", kafka.bootstrap_servers
        process, apart = as_process_1(sys.executable, "-c", script, *servers, source, sink, str(tmp_path / "state"))
        # It has got as far as asking for brokers, and nobody answers.
        silent.settimeout(300)
        connection, _ = silent.accept()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        python = int(children[0]) if apart else process.pid
        os.kill(python, signal.SIGTERM)
        assert process.stdout.readline() == "start() ended with 143\n"
        assert process.stdout.readline() == "nothing is left of it: NOT_RUNNING\n"
        connection.close()
    assert process.stdout.readline() == "started\n"
    os.kill(python, signal.SIGTERM)
    assert process.stdout.readline() == "the script ended with 143\n"
    assert process.stdout.readline() == "NOT_RUNNING\n"
    assert process.wait(120) == 143
