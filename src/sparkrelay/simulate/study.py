"""A study on Spark: every scenario is a row, its simulations run where the row is, and the results are rows again.

Scenarios are independent, so Spark has nothing to shuffle: one ``mapInArrow`` over enough partitions that progress
shows and a few dear scenarios do not leave a core idle at the end.
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

__all__ = ["Progress", "run_study", "scenario_frame", "summarize", "watched"]

_ARROW_TYPES = {int: pa.int64(), float: pa.float64(), str: pa.string(), bool: pa.bool_()}
_SPARK_TYPES = {int: "bigint", float: "double", str: "string", bool: "boolean"}
#: Simulations of one Spark task: a second or two of work, so that progress shows and starting it costs little.
_SIMULATIONS_A_TASK = 100
_POLL_S = 0.25

_group_numbers = itertools.count(1)


class Progress(NamedTuple):
    """How far a study is.

    Attributes:
        done: Spark tasks done; never fewer than shown before.
        total: Spark tasks in all; 0 until they have begun.
    """

    done: int
    total: int


def scenario_frame(spark: SparkSession, scenarios: Iterable[Scenario]) -> DataFrame:
    """Return scenarios as a DataFrame, a column for each field of :class:`Scenario`."""
    rows = [dataclasses.asdict(scenario) for scenario in scenarios]
    if not rows:
        raise ConfigException("a study needs at least one scenario")
    schema = ", ".join(f"{name} {_SPARK_TYPES[kind]} not null" for name, kind, _ in _columns(Scenario))
    return spark.createDataFrame([tuple(row.values()) for row in rows], schema)


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
        scenarios: Scenarios, or a DataFrame with columns named as the fields of :class:`Scenario`; columns that are
            left out have the field's default.
        assignors: Import paths, paths of files (``./mine.py:Mine``), or classes; None for all of ours.
        settings: What each assignor is configured with: ``task.assignor.`` and more.
        limit_s: Wall-clock seconds after which one simulation is given up, its assignor having failed: some loop for
            ever. The usual simulation takes milliseconds.

    Returns:
        One row for each scenario and assignor: the scenario's columns, ``assignor``, and those of :class:`Outcome`.
        Nothing has run yet; persist it if you want to look at it more than once.

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
        # One partition, so that reading the rows is not taken for the study by who watches.
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
    """Return one row for each kind of churn and assignor, and for each assignor over all kinds (churn ``all``).

    Columns: ``runs``, ``failed``, ``unconverged``, and for each measure its ``_median``, ``_mean`` and ``_p95``.
    Failed runs have no measures and take no part in them.
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
    """Call ``show``, on a thread of its own, with how far the jobs started in this block are, until the block ends."""
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
                    # The stage with the most tasks is the one that simulates. A later job names it again, as skipped
                    # and with nothing done, once its rows are kept.
                    if found and found.numTasks > 1:
                        shown = max(shown, Progress(found.numCompletedTasks, found.numTasks), key=_by_size)
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


def _by_size(progress: Progress) -> tuple[int, int]:
    return progress.total, progress.done


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
    """Let a class from a file travel by value: executors have no such module."""
    module = sys.modules.get(kind.__module__)
    if module is not None and kind.__module__.endswith(".py"):  # load_assignor names such a module by its path
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _columns(kind: type[Scenario | Outcome]) -> list[tuple[str, type, bool]]:
    """Return name, type and whether it may be null, for each field."""
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
