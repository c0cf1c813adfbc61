"""Random pipelines over random rows end with what Spark computes over the same rows at once.

Each run has a new seed, which it prints and which every failure names. `SPARKRELAY_RANDOM_SEED` repeats a run,
`SPARKRELAY_RANDOM_ROUNDS` makes it longer.
"""

import contextlib
import json
import math
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from decimal import Decimal

import pytest
from pyspark.sql import functions as F
from tests.chaos.instances import signal_session
from tests.integration.runtime.random_pipelines import Round
from tests.integration.runtime.random_rows import TIME
from tests.waiting import LONG, remove_folder

from sparkrelay.errors import TopologyException

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

SEED = os.environ.get("SPARKRELAY_RANDOM_SEED", str(random.SystemRandom().randrange(10**9)))
#: Where the killed instance dies: points that every micro-batch passes.
_POINTS = (
    "driver-before-job",
    "fetch-first-rows",
    "publish-before-flush",
    "publish-after-flush",
    "driver-before-commit",
    "driver-after-commit",
)
ROUNDS = int(os.environ.get("SPARKRELAY_RANDOM_ROUNDS", "2"))


@contextlib.contextmanager
def session_zone(spark, zone):
    """Put the session, which is every test's, on a zone for a while."""
    name = "spark.sql.session.timeZone"
    before = spark.conf.get(name)
    spark.conf.set(name, zone)
    try:
        yield
    finally:
        spark.conf.set(name, before)


class Comparison:
    """What the topics of a round are to hold in the end, and where they differ from it."""

    def __init__(self, seed, this, spark, instance, make_topic, consumed):
        self.seed = seed
        self.this = this
        self._consumed = consumed
        print(f"\n{seed}: {this}")
        refused = {}
        for pipeline in this.pipelines:
            try:
                instance(this.builder("in", {pipeline.name: "out"}))
            except TopologyException as refusal:
                refused[pipeline.name] = str(refusal)
        self._running = [pipeline for pipeline in this.pipelines if pipeline.name not in refused]
        print(f"{len(self._running)} pipelines run, refused are {refused}")
        assert self._running, f"{seed}: {refused}"
        self._expected = {pipeline.name: this.expected(spark, pipeline) for pipeline in self._running}
        self.source = make_topic("in", 3)
        self.sinks = {pipeline.name: make_topic(pipeline.name, 2) for pipeline in self._running}

    def differences(self):
        found = {
            pipeline.name: _differences(
                pipeline, self._consumed(self.sinks[pipeline.name], full=True), *self._expected[pipeline.name]
            )
            for pipeline in self._running
        }
        return {name: lines for name, lines in found.items() if lines}

    def begun(self):
        return any(self._consumed(sink) for sink in self.sinks.values())

    def run(self, streams, wait_until, *, until):
        """Run an instance until something is so, and stop it."""
        streams.start()
        with contextlib.suppress(AssertionError):  # what is asserted at the end says more
            wait_until(lambda: streams.exception() or until(), "", 240)
        assert streams.exception() is None, f"{self.seed}: {streams.exception()!r}"
        assert streams.stop(LONG), self.seed


# The seed is no parameter: the processes of pytest-xdist must agree on the names of tests.
@pytest.mark.long
@pytest.mark.parametrize("number", range(ROUNDS))
def test_random_pipelines_end_with_what_spark_computes(
    number, spark, instance, make_topic, produce, consumed, wait_until, tmp_path
):
    seed = f"SPARKRELAY_RANDOM_SEED={SEED}, round {number}"
    this = Round(f"{SEED}.{number}")
    with session_zone(spark, this.zone):
        compared = Comparison(seed, this, spark, instance, make_topic, consumed)
        for target, (records, batch) in enumerate(this.parts):
            if target == this.state_lost_at:
                remove_folder(tmp_path / "state")
            produce(compared.source, [this.rows.message(record) for record in records])
            streams = instance(
                this.builder(compared.source, compared.sinks), {**this.config, "max.batch.records": batch}
            )
            last = target == len(this.parts) - 1
            compared.run(streams, wait_until, until=(lambda: not compared.differences()) if last else compared.begun)
        # Once more: what came after it was right, until it stopped, must not have made it wrong.
        assert compared.differences() == {}, seed


@pytest.mark.long
@pytest.mark.chaos
def test_random_pipelines_end_with_the_same_after_a_kill(
    spark, kafka, instance, application_id, make_topic, produce, consumed, wait_until, tmp_path, project_root
):
    """An instance dies in a micro-batch, and another takes over, beside the state that it left or without it."""
    seed = f"SPARKRELAY_RANDOM_SEED={SEED}, the round of the kill"
    this = Round(f"{SEED}.kill", 4)
    point, count = this.random.choice(_POINTS), this.random.randrange(1, 5)
    config = {**this.config, "application.id": application_id, "bootstrap.servers": kafka.bootstrap_servers}
    with session_zone(spark, this.zone):
        compared = Comparison(seed, this, spark, instance, make_topic, consumed)
        messages = [this.rows.message(record) for record in this.rows.records]
        produce(compared.source, messages[:75])
        settings = {
            "seed": f"{SEED}.kill",
            "pipelines": len(this.pipelines),
            "round": str(this),
            "zone": this.zone,
            "source": compared.source,
            "sinks": compared.sinks,
            "config": {
                **config,
                "state.dir": str(tmp_path / "state"),
                "session.timeout.ms": 6000,
                "max.batch.records": 5,
            },
        }
        with _process(settings, tmp_path, project_root) as (child, tail):
            wait_until(lambda: compared.begun() or child.poll() is not None, f"{seed}: it writes nothing", 240)
            assert child.poll() is None, f"{seed}: {tail()}"
            (tmp_path / "faults").write_text(f"random {point} {count} instance")
            # At least five batches more.
            produce(compared.source, messages[75:])
            wait_until(lambda: child.poll() is not None, f"{seed}: it does not come to {point} {count}", 240)
            assert child.returncode == -signal.SIGKILL, f"{seed}: {tail()}"
        successor = instance(
            this.builder(compared.source, compared.sinks),
            {**config, "state.dir": str(tmp_path / this.random.choice(["state", "other"]))},
        )
        compared.run(successor, wait_until, until=lambda: not compared.differences())
        assert compared.differences() == {}, f"{seed}, killed at {point} {count}"


@contextlib.contextmanager
def _process(settings, folder, root):
    """Run an instance as a process; give it and what shows the end of its log."""
    log = folder / "child.log"
    with log.open("wb") as output:
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.runtime.random_child", json.dumps(settings)],
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")])),
                "SPARKRELAY_FAULTS": str(folder / "faults"),
            },
        )
    try:
        yield child, lambda: "\n".join(log.read_text(errors="replace").splitlines()[-60:])
    finally:
        signal_session(child.pid, signal.SIGKILL)
        child.wait(LONG)


def _differences(pipeline, found, rows, tombstones):
    """Say where a topic is not what Spark has computed."""
    if pipeline.group is None:
        ours = Counter(_text(_of_record(message)) for message in found)
        theirs = Counter(map(_text, map(_read, rows))) + Counter(_text({TIME: time}) for time in tombstones)
        return _missing(ours, theirs)
    last = {message.key(): _of_record(message) for message in found}
    ours, theirs = _by_group(last.values()), _by_group(map(_read, rows))
    lines = _missing(Counter(ours.keys()), Counter(theirs.keys()))
    if len(ours) != len(last):
        lines.append(f"{len(ours)} groups have {len(last)} keys")
    for group in ours.keys() & theirs.keys():
        for name in sorted(ours[group].keys() | theirs[group].keys()):
            mine, spark_s = ours[group].get(name), theirs[group].get(name)
            if not _same(mine, spark_s, pipeline.tolerance.get(name, 0)):
                lines.append(f"{group}: {name} is {mine!r}, Spark's {spark_s!r}")
    return lines[:6]


def _read(value):
    return json.loads(value, parse_float=Decimal)


def _of_record(message):
    """Return what a record says, with its timestamp; a tombstone says nothing else."""
    fields = {} if message.value() is None else _read(message.value())
    return {**fields, TIME: message.timestamp()[1]}


def _missing(ours, theirs):
    more, fewer = ours - theirs, theirs - ours
    return [f"too many: {x}" for x in list(more.items())[:3]] + [f"missing: {x}" for x in list(fewer.items())[:3]]


def _by_group(rows):
    """Part the result columns, `a0`, `a1` and so on, from the grouping columns."""
    return {
        _text({name: value for name, value in row.items() if not _is_result(name)}): {
            name: value for name, value in row.items() if _is_result(name)
        }
        for row in rows
    }


def _is_result(name):
    return name == TIME or (name[0] == "a" and name[1:].isdecimal())


def _text(value):
    """Return the same text for the same value, however its numbers are written."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{name!r}:{_text(item)}" for name, item in sorted(value.items())) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_text, value)) + "]"
    if isinstance(value, Decimal):
        return repr(float(value)) if len(value.as_tuple().digits) <= 17 else str(value.normalize())
    return repr(value)


def _same(mine, theirs, tolerance):
    if _text(mine) == _text(theirs):
        return True
    if not isinstance(mine, Decimal) or not isinstance(theirs, Decimal):
        return False
    # Which of two zeros is the least, and which sum of doubles is right, is a matter of their order.
    return mine == theirs or (tolerance > 0 and math.isclose(mine, theirs, rel_tol=1e-9, abs_tol=tolerance))


@pytest.mark.long
def test_columns_are_shown_as_spark_shows_them(spark):
    """What is compared is text: Spark's own JSON of a row is read to the same."""
    frame = spark.range(1).select(F.lit(1e20).alias("x"), F.lit(-0.0).alias("z"), F.lit(1).alias("n"))
    (shown,) = Round.shown(frame)
    assert (
        _text(_read(shown)) == _text(_read(b'{"x":1e+20,"z":-0.0,"n":1}')) != _text(_read(b'{"x":1e+20,"z":0.0,"n":1}'))
    )
