"""A study on Spark: scenarios are rows, simulations run in Spark tasks, and results are rows again.

Scenarios are independent, so there is no shuffle: one ``mapInArrow``, over enough partitions to show progress and to
keep all cores busy although some scenarios are expensive.
"""

from __future__ import annotations

import dataclasses
import itertools
import sys
import threading
import typing
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyspark import cloudpickle  # noqa: TID251 - it only writes: the user's own assignor, for Spark's workers
from pyspark.sql import DataFrame, functions as F  # noqa: N812 - everybody writes it so

from sparkrelay.errors import ConfigException
from sparkrelay.simulate.contestants import Contestant, contestants
from sparkrelay.simulate.deadline import OutOfTime, deadline
from sparkrelay.simulate.outcome import MEASURES, Outcome
from sparkrelay.simulate.scenario import Scenario
from sparkrelay.simulate.simulation import simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from sparkrelay.assignment import TaskAssignor

_ARROW_TYPES = {int: pa.int64(), float: pa.float64(), str: pa.string(), bool: pa.bool_()}
_SPARK_TYPES = {int: "bigint", float: "double", str: "string", bool: "boolean"}
#: Simulations per Spark task: a second or two of work, so progress is visible and start-up costs little.
_SIMULATIONS_A_TASK = 100
_POLL_S = 0.25

_group_numbers = itertools.count(1)


class Progress(NamedTuple):
    """The progress of a study in Spark tasks: those done, which never decreases, and all, 0 before they begin."""

    done: int
    total: int


def scenario_frame(spark: SparkSession, scenarios: Iterable[Scenario]) -> DataFrame:
    """Return scenarios as a DataFrame, a column for each field of :class:`Scenario`."""
    rows = [dataclasses.astuple(scenario) for scenario in scenarios]
    if not rows:
        raise ConfigException("a study needs at least one scenario")
    schema = ", ".join(f"{name} {_SPARK_TYPES[kind]} not null" for name, kind, _ in _columns(Scenario))
    return spark.createDataFrame(rows, schema)


def run_study(
    spark: SparkSession,
    scenarios: DataFrame | Iterable[Scenario],
    assignors: Iterable[str | type[TaskAssignor]] | None = None,
    *,
    settings: Mapping[str, str] | None = None,
    limit_s: float = 10.0,
) -> DataFrame:
    """Simulate every scenario with every assignor.

    Args:
        spark: Any session.
        scenarios: Scenarios, or a DataFrame with columns named as the fields of :class:`Scenario`; missing columns take
            the field's default.
        assignors: Import paths, paths of files (``./mine.py:Mine``), or classes; None for all of ours.
        settings: Settings of the assignors, ``task.assignor.*``.
        limit_s: Wall-clock limit of one simulation, which usually takes milliseconds; beyond it the assignor, which may
            loop, has failed.

    Returns:
        One row per scenario and assignor: the scenario's columns, ``assignor``, and those of :class:`Outcome`. It is
        lazy: persist it to use it more than once.

    Raises:
        ConfigException: an assignor cannot be loaded, a column is unknown, or there is no scenario.
    """
    chosen = contestants(assignors, settings)
    for contestant in chosen:
        _ship(contestant.kind)
    if isinstance(scenarios, DataFrame):
        frame, count = scenarios, scenarios.count()
    else:
        listed = list(scenarios)
        # One partition, so that `watched` does not take reading the rows for the study.
        frame, count = scenario_frame(spark, listed).coalesce(1), len(listed)
    known = {name for name, _, _ in _columns(Scenario)}
    if unknown := set(frame.columns) - known:
        raise ConfigException(f"scenarios have unknown columns {sorted(unknown)}; known are {sorted(known)}")
    if not count:
        raise ConfigException("a study needs at least one scenario")
    cores = max(1, spark.sparkContext.defaultParallelism)
    partitions = min(count, max(2 * cores, count * len(chosen) // _SIMULATIONS_A_TASK))
    return frame.repartition(partitions).mapInArrow(_runner(chosen, limit_s), _result_schema())


def summarize(results: DataFrame) -> DataFrame:
    """Return one row per kind of churn and assignor, and one per assignor over all kinds (churn ``all``).

    Columns: ``runs``, ``failed``, ``unconverged``, and ``_median``, ``_mean`` and ``_p95`` of each measure, over the
        runs
    that did not fail.
    """
    figures = [
        F.count("*").alias("runs"),
        F.count("error").alias("failed"),
        F.sum((F.col("error").isNull() & ~F.col("converged")).cast("int")).alias("unconverged"),
    ]
    for name in MEASURES:
        value = F.col(name)
        figures += [
            F.median(value).alias(f"{name}_median"),
            F.mean(value).alias(f"{name}_mean"),
            F.percentile(value, F.lit(0.95)).alias(f"{name}_p95"),
        ]
    by_kind = results.groupBy("churn", "assignor").agg(*figures)
    over_all = results.groupBy(F.lit("all").alias("churn"), "assignor").agg(*figures)
    return by_kind.unionByName(over_all).orderBy("churn", "assignor")


@contextmanager
def watched(spark: SparkSession, show: Callable[[Progress], None]) -> Iterator[None]:
    """Call ``show`` on another thread with the progress of the jobs started in this block, until the block ends."""
    context = spark.sparkContext
    group = f"sparkrelay-study-{next(_group_numbers)}"
    over = threading.Event()

    def look() -> None:
        tracker = context.statusTracker()
        shown = Progress(0, 0)
        while not over.wait(_POLL_S):
            for job in tracker.getJobIdsForGroup(group):
                info = tracker.getJobInfo(job)
                for stage in info.stageIds if info else ():
                    found = tracker.getStageInfo(stage)
                    # The stage with the most tasks is the simulation. A later job lists it again as skipped, with no
                    # task done, once its rows are persisted.
                    if found and found.numTasks > 1 and shown[::-1] < (found.numTasks, found.numCompletedTasks):
                        shown = Progress(found.numCompletedTasks, found.numTasks)
            show(shown)

    context.setJobGroup(group, "simulating task assignors", interruptOnCancel=True)
    watcher = threading.Thread(target=look, name="sparkrelay-study-progress", daemon=True)
    watcher.start()
    try:
        yield
    except BaseException:
        context.cancelJobGroup(group)
        raise
    finally:
        over.set()
        watcher.join()
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]


def _runner(
    chosen: Sequence[Contestant], limit_s: float
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = pa.schema([(name, _ARROW_TYPES[kind]) for name, kind, _ in _result_columns()])
        for batch in batches:
            for row in batch.to_pylist():
                scenario = Scenario(**row)
                values = dataclasses.asdict(scenario)
                rows = [
                    values | {"assignor": contestant.name} | dataclasses.asdict(_outcome(scenario, contestant, limit_s))
                    for contestant in chosen
                ]
                yield pa.RecordBatch.from_pylist(rows, schema=schema)

    return run


def _outcome(scenario: Scenario, contestant: Contestant, limit_s: float) -> Outcome:
    try:
        with deadline(limit_s):
            return simulate(scenario, contestant.make())
    except OutOfTime:
        return Outcome(error=f"the simulation was not through after {limit_s:g} s: the assignor loops, or is too slow")
    except ConfigException as error:
        return Outcome(error=str(error))


def _ship(kind: type[TaskAssignor]) -> None:
    """Have a class from a file pickled by value: executors lack its module."""
    module = sys.modules.get(kind.__module__)
    if module is not None and kind.__module__.endswith(".py"):  # load_assignor names the module by its path
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _columns(kind: type[Scenario | Outcome]) -> list[tuple[str, type, bool]]:
    """Return the name, type and nullability of each field."""
    hints = typing.get_type_hints(kind)
    columns = []
    for field in dataclasses.fields(kind):
        options: tuple[Any, ...] = typing.get_args(hints[field.name])
        plain = next((option for option in options if option is not type(None)), hints[field.name])
        columns.append((field.name, plain, bool(options)))
    return columns


def _result_columns() -> list[tuple[str, type, bool]]:
    return [*_columns(Scenario), ("assignor", str, False), *_columns(Outcome)]


def _result_schema() -> str:
    return ", ".join(
        f"{name} {_SPARK_TYPES[kind]}{'' if nullable else ' not null'}" for name, kind, nullable in _result_columns()
    )
