"""Rebalance callbacks that call their consumer, in a real group, with either protocol and either face."""

from __future__ import annotations

import asyncio

import pytest

from sparkrelay.consumer import AsyncConsumer
from sparkrelay.errors import DisconnectException

pytestmark = pytest.mark.integration
PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])


class Program:
    """Keeps what polls return, within callbacks too. Assignments of nothing, as KIP-848 begins with, do not count."""

    def take(self, table):
        if table is not None:
            self.rows += table.to_pylist()

    def poll_until(self, condition):
        for _ in range(600):
            self.take(self.run("poll", 0.1))
            if condition():
                return
        raise AssertionError(self.story)


class Blocking(Program):
    """Runs what the test does with a blocking consumer."""

    def __init__(self, make, config):
        self.consumer = make(**{key.replace(".", "_"): value for key, value in config.items()})
        self.story, self.rows = [], []

    def run(self, name, *args, **more):
        return getattr(self.consumer, name)(*args, **more)

    def callback(self, name, *calls):
        def call(consumer, partitions):
            if partitions:
                self.story.append((name, sorted(partitions)))
            for method, *args in calls if partitions else ():
                self.take(getattr(consumer, method)(*args))

        return call

    def end(self):
        self.run("close", 5)


class Awaiting(Program):
    """Runs what the test does with an awaiting consumer."""

    def __init__(self, bootstrap_servers, config):
        self.runner = asyncio.Runner()
        self.consumer = AsyncConsumer({"bootstrap.servers": bootstrap_servers, **config})
        self.story, self.rows = [], []

    def run(self, name, *args, **more):
        async def main():
            return await getattr(self.consumer, name)(*args, **more)

        return self.runner.run(main())

    def callback(self, name, *calls):
        async def call(consumer, partitions):
            if partitions:
                self.story.append((name, sorted(partitions)))
            for method, *args in calls if partitions else ():
                self.take(await getattr(consumer, method)(*args))

        return call

    def end(self):
        self.run("close", 5)
        self.runner.close()


@pytest.fixture(params=["blocking", "awaiting"])
def make_program(request, kafka, make_consumer, group):
    made = []

    def make(protocol):
        config = {"group.id": group, "auto.offset.reset": "earliest", "group.protocol": protocol}
        awaits = request.param == "awaiting"
        program = Awaiting(kafka.bootstrap_servers, config) if awaits else Blocking(make_consumer, config)
        made.append(program)
        return program

    yield make
    for program in made:
        program.end()


@PROTOCOLS
@pytest.mark.parametrize("inner", ["unsubscribe", "close"])
@pytest.mark.parametrize("outer", ["unsubscribe", "close"])
def test_leaving_within_on_revoked(make_program, make_topic, protocol, outer, inner):
    topic, program = make_topic("calls", partitions=2), make_program(protocol)
    program.run("subscribe", [topic], on_revoked=program.callback("revoked", (inner,)))
    program.poll_until(lambda: len(program.run("assignment")) == 2)
    program.run(outer)
    assert program.story == [("revoked", [(topic, 0), (topic, 1)])]


@PROTOCOLS
@pytest.mark.parametrize("inner", ["unsubscribe", "close"])
def test_leaving_within_on_assigned_and_coming_back(make_program, make_topic, protocol, inner):
    topic, program = make_topic("calls", partitions=2), make_program(protocol)
    program.run(
        "subscribe",
        [topic],
        on_assigned=program.callback("assigned", (inner,)),
        on_revoked=program.callback("revoked"),
    )
    if inner == "close":
        with pytest.raises(DisconnectException, match="the consumer is closed"):
            program.poll_until(lambda: False)
    else:
        with pytest.raises(ValueError, match=r"call subscribe\(\) or assign\(\)"):
            program.poll_until(lambda: False)
    (assigned, given), (revoked, gone) = program.story
    assert (assigned, revoked) == ("assigned", "revoked")
    assert given == gone
    if inner == "unsubscribe":
        program.run("subscribe", [topic], on_assigned=program.callback("again"))
        program.poll_until(lambda: len(program.run("assignment")) == 2)


@PROTOCOLS
def test_polling_within_callbacks_runs_none_and_loses_no_record(make_program, make_topic, produce, protocol):
    topic, program = make_topic("calls", partitions=2), make_program(protocol)
    produce(topic, [{"value": str(i), "partition": i % 2} for i in range(10)])
    program.run(
        "subscribe",
        [topic],
        on_assigned=program.callback("assigned", ("poll", 0.2)),
        on_revoked=program.callback("revoked", ("poll", 0.2)),
    )
    program.poll_until(lambda: len(program.rows) >= 10)
    assert len(program.rows) == len({(row["partition"], row["offset"]) for row in program.rows}) == 10
    program.run("unsubscribe")
    reported = [name for name, _ in program.story]
    assert reported[-1] == "revoked"
    assert reported.count("assigned") == len({tuple(p) for n, p in program.story if n == "assigned"})
