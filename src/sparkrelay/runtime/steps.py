"""The user's row-wise steps on DataFrames, with the hidden columns kept and the user's line in every complaint."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from sparkrelay.errors import SparkRelayError, TopologyException
from sparkrelay.runtime import hidden

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

    from sparkrelay.topology import Step

__all__ = ["apply_step", "checked", "visible"]


def apply_step(step: Step, rows: DataFrame, carried: tuple[str, ...]) -> DataFrame:
    """Apply one of the user's steps, keeping the hidden columns."""
    where = str(step.call_site)
    if step.kind == "select":
        arguments = step.args[0] if len(step.args) == 1 and isinstance(step.args[0], list | tuple) else step.args
        after = checked(where, lambda: rows.select(*_visible_star(arguments, rows), *carried))
    elif step.kind == "selectExpr":
        after = checked(where, lambda: rows.selectExpr(*step.args, *(f"`{name}`" for name in carried)))
    elif step.kind == "transform":
        after = checked(where, lambda: rows.transform(*step.args, **step.kwargs))
        lost = [name for name in carried if name not in after.columns]
        if lost:
            raise TopologyException(
                f"{where}: transform({getattr(step.args[0], '__name__', 'fn')}) drops the columns that say which task "
                "a row belongs to; inside transform use withColumn, where and drop, and select() outside of it"
            )
    else:
        after = checked(where, lambda: getattr(rows, step.kind)(*step.args, **step.kwargs))
    for name in carried:
        if name not in after.columns:
            raise TopologyException(f"{where}: {step.text} removes the reserved column {name!r}")
    return after


def _visible_star(arguments: Any, rows: DataFrame) -> list[Any]:
    """Replace a lone ``*`` by the visible columns, so that hidden ones do not come twice."""
    expanded: list[Any] = []
    for argument in arguments:
        if isinstance(argument, str) and argument == "*":
            expanded += [f"`{name}`" for name in visible(rows).names]
        else:
            expanded.append(argument)
    return expanded


@contextlib.contextmanager
def _quiet_spark() -> Iterator[None]:
    """Keep Spark from logging a stack trace beside our one sentence."""
    loggers = [logging.getLogger(name) for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger")]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


def visible(rows: DataFrame) -> StructType:
    """Return the columns that users see."""
    return StructType([field for field in rows.schema if not field.name.startswith(hidden.PREFIX)])


def checked(where: str, build: Callable[[], DataFrame]) -> DataFrame:
    """Run a step on DataFrames, putting the user's line in front of Spark's own complaint."""
    try:
        with _quiet_spark():
            after = build()
            _ = after.schema
    except PySparkException as error:
        message = str(error.getMessage() if hasattr(error, "getMessage") else error).splitlines()[0]
        raise TopologyException(f"{where}: {message}") from error
    except SparkRelayError:
        raise
    except (TypeError, ValueError, AttributeError, AssertionError) as error:
        raise TopologyException(f"{where}: {error}") from error
    return after
