"""A group member in a process of its own, ours or librdkafka's, that prints its story on stdout; ended by SIGTERM.

Run as ``python mixed_reader.py CLIENT BOOTSTRAP GROUP TOPIC STRATEGY``. A line is a time in seconds, a kind, numbers:
``+``, ``-`` and ``!`` a partition that was assigned, revoked or lost, ``r`` a partition and an offset that was read,
``leads`` a generation in which it led.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import time

stopping = False


def stop(*_):
    global stopping  # noqa: PLW0603 - a signal handler has nothing else
    stopping = True


def report(kind, *numbers):
    os.write(1, f"{time.time():.3f} {kind} {' '.join(map(str, numbers))}\n".encode())


def print_each(kind):
    def callback(_, partitions):
        for partition in partitions:
            report(kind, partition.partition)

    return callback


def settings(bootstrap, group, strategy):
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "partition.assignment.strategy": strategy,
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 500,
        "heartbeat.interval.ms": 500,
        "session.timeout.ms": 8000,
    }


class PrintLeading(logging.Handler):
    def emit(self, record):
        if found := re.search(r"generation (\d+): leads \d+ members", record.getMessage()):
            report("leads", found[1])


def ours(bootstrap, group, topic, strategy):
    from sparkrelay.consumer import Consumer

    story = logging.getLogger("sparkrelay.consumer.rebalance")
    story.setLevel(logging.DEBUG)
    story.addHandler(PrintLeading())
    with Consumer(settings(bootstrap, group, strategy)) as consumer:
        consumer.subscribe([topic], on_assigned=print_each("+"), on_revoked=print_each("-"), on_lost=print_each("!"))
        while not stopping:
            table = consumer.poll(0.2)
            for partition, offset in zip(*(table[c].to_pylist() for c in ("partition", "offset")), strict=True):
                report("r", partition, offset)


def librdkafka(bootstrap, group, topic, strategy):
    from confluent_kafka import Consumer

    consumer = Consumer(settings(bootstrap, group, strategy) | {"enable.auto.offset.store": False})
    consumer.subscribe([topic], on_assign=print_each("+"), on_revoke=print_each("-"), on_lost=print_each("!"))
    while not stopping:
        message = consumer.poll(0.2)
        if message is not None and not message.error():
            report("r", message.partition(), message.offset())
            consumer.store_offsets(message)
    consumer.close()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, stop)
    {"ours": ours, "librdkafka": librdkafka}[sys.argv[1]](*sys.argv[2:])
