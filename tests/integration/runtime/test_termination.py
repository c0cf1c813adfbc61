"""SIGTERM of an instance that its script does not wait for yet, as process 1 of a container where that can be made.

And SIGTERM and Ctrl-C at random moments of a start.
"""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.short_spark import SHORT_LIVED
from tests.waiting import LONG

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
        while True:  # a signal that comes right before a sleep does not end it
            time.sleep(0.05)
    except SystemExit as caught:
        print("the script ended with", caught.code, flush=True)
        raise
    finally:
        threading.Thread(target=lambda: (streams.stop(), print(streams.state, flush=True))).start()
"""

#: The signal comes at a random call of ours, on whichever thread, from the line "starting with" to the first batches.
RANDOM_SCRIPT = """
import os, random, signal, sys, threading
from sparkrelay import Json, KafkaStreams, StreamsBuilder, spark_session

brokers, source, sink, state_dir, seed = sys.argv[1:]
builder = StreamsBuilder()
builder.stream(source, value=Json("shop string")).to(sink)
spark = spark_session("termination", **{"spark.master": "local[1]", **SHORT_LIVED})
config = {"application.id": source, "state.dir": state_dir, "bootstrap.servers": brokers}
chosen, lock = random.Random(int(seed)), threading.Lock()
left, number = 0, None

def count(frame, event, arg):
    global left
    if event == "call" and left and "/sparkrelay/" in frame.f_code.co_filename:
        with lock:
            left -= 1
            reached = left == 0
        if reached:
            os.kill(os.getpid(), number)

for round in range(1, 9):
    number = signal.SIGINT if round % 3 == 0 else signal.SIGTERM
    streams = KafkaStreams(builder.build(), config, spark=spark)
    threading.setprofile(count)
    # The first calls are those of the short windows.
    left = int(10 ** chosen.uniform(1.2, 4.3))
    print(f"{seed}.{round}: {number.name} at call {left}", file=sys.stderr, flush=True)
    try:
        sys.setprofile(count)
        with streams:
            streams.start()
            streams.awaitTermination()
    except (SystemExit, KeyboardInterrupt) as caught:
        assert isinstance(caught, KeyboardInterrupt) or caught.code == 143, caught
        if round == 8:
            raise
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    print(round, streams.state, left, flush=True)
sys.exit(143)  # the last signal came while it was waited for
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


@pytest.mark.long
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
    assert process.wait(LONG) == 143


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_a_signal_at_any_moment_of_a_start_ends_it(as_process_1, kafka, make_topic, tmp_path, seed):
    source, sink = make_topic("interrupted"), make_topic("copied")
    script = RANDOM_SCRIPT.replace("SHORT_LIVED", repr(SHORT_LIVED))
    arguments = kafka.bootstrap_servers, source, sink, str(tmp_path / "state"), str(seed)
    process, _ = as_process_1(sys.executable, "-c", script, *arguments)
    rounds = [line.split() for line in process.stdout]
    assert [(int(number), state, left) for number, state, left in rounds[:7]] == [
        (number, "NOT_RUNNING", "0") for number in range(1, 8)
    ]
    assert process.wait(LONG) == 143
