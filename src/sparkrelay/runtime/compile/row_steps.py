"""The user's row-wise steps on DataFrames, with the hidden columns kept and the user's line in every complaint."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, FloatType, StructType

from sparkrelay.errors import SparkRelayError, TopologyException
from sparkrelay.runtime.compile.catalyst import select_names, select_texts
from sparkrelay.runtime.compile.row_wise import differs_each_time, drawn, may_drop_rows, not_row_wise, reads_hidden
from sparkrelay.runtime.compile.schemas import HEADERS, without_kafka
from sparkrelay.runtime.contract import hidden_columns
from sparkrelay.runtime.spark.spark_logs import query_errors_unlogged
from sparkrelay.topology.columns import is_star, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from pyspark.sql import Column, DataFrame

    from sparkrelay.topology import Aggregation, Step

#: Marks the rows of a DataFrame in a join.
_FOUND = "sparkrelay_found"
_EXCLUDED_RULES = "spark.sql.adaptive.optimizer.excludedRules"
_EMPTY_SIDES = "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation"
#: Our own columns among those that Spark suggests.
_OWN_COLUMNS = re.compile(rf", `{hidden_columns.PREFIX}\w+`|`{hidden_columns.PREFIX}\w+`, ")
_TWO_COLUMNS = (
    ". Two columns have that name, or names that differ in case only, which are one to Spark: give one of them another "
    "name with alias(), as in groupBy(F.col('s.a').alias('s_a')) beside a column a, or drop() it"
)


def apply_steps(
    steps: Sequence[Step],
    source: DataFrame,
    carried: tuple[str, ...],
    *,
    table_steps: int = 0,
    tombstones_pass: bool = False,
    repeated: Collection[Step] = (),
) -> DataFrame:
    """Apply the user's steps in turn, keeping the hidden columns.

    Args:
        steps: what the user wrote.
        source: where rows come from.
        carried: hidden columns.
        table_steps: how many of the first steps are a table's, of which only filters may drop rows.
        tombstones_pass: True in front of a table of newest rows: no filter keeps a deletion from it.
        repeated: steps that other legs take the same rows through.

    Raises:
        TopologyException: a step is not possible, not row-wise, may drop a table's rows, or draws in each leg anew;
            names its line.
    """
    frames = [source]
    for step in steps:
        if step.table_key is not None:
            # What a table holds of a row has no columns of Kafka's own.
            frames[-1] = select_names(frames[-1], without_kafka(frames[-1].schema).names)
        if step.table_key is not None and step.is_filter:
            frames.append(_deleting(step, frames[-1], step.table_key))
        elif tombstones_pass and step.is_filter:
            frames.append(_filtered(step, frames[-1]))
        else:
            frames.append(_apply(step, frames[-1], carried, tombstones_pass=tombstones_pass))
    if steps and not_row_wise(frames[-1]) is not None:
        for step, frame in zip(steps, frames[1:], strict=True):
            if (reason := not_row_wise(frame)) is not None:
                raise TopologyException(
                    f"{step.call_site}: {step.text} is not row-wise ({reason}): its result would depend on which rows "
                    "happen to be in one micro-batch. What must see all rows of a key is done by groupBy(...).agg(...)"
                )
    for index, (step, before, after) in enumerate(zip(steps, frames, frames[1:], strict=False)):
        if index < table_steps and hidden_columns.CHANGE in carried:
            check_repeatable(step, before, after)
        if step in repeated:
            _check_drawn_once(step, before, after)
        of_table = index < table_steps or step.table_key is not None
        # What a table's filter once let through is deleted (``worker.table_changes``).
        if of_table and not step.is_filter and (reason := may_drop_rows(before, after)) is not None:
            raise TopologyException(
                f"{step.call_site}: {step.text} of a table may drop rows or repeat them ({reason}): what it once let "
                "through would stay in the sink when the group changes. Use where(...), or put to_stream() before it, "
                "to change each update by itself"
            )
        # Filters and joins see to it themselves that records without a value pass.
        if tombstones_pass and not of_table and not step.is_filter and step.kind != "join":
            _check_deletions_pass(step, before, after)
    return frames[-1]


def check_repeatable(step: Step | Aggregation, before: DataFrame, after: DataFrame) -> None:
    """Refuse what makes something else of the same row of a table when what it has made is to be taken back."""
    if differs_each_time(before) is None and (reason := differs_each_time(after)) is not None:
        raise TopologyException(
            f"{step.call_site}: {step.text} of a table: {reason}. When a row changes, what was made of it before is "
            "taken back, and by then it would be something else. Compute it in front of the table, or put to_stream() "
            "before it"
        )


def _check_drawn_once(step: Step, before: DataFrame, after: DataFrame) -> None:
    """Refuse a step in front of a fork whose values would not be the same on each way."""
    expressions = drawn(after)
    if len(expressions) > len(drawn(before)):
        raise TopologyException(
            f"{step.call_site}: {step.text}: the stream has several ways out behind this, each of them repeats the "
            f"step, and {expressions[0]} is not deterministic: one row would have other values on each. Put "
            'repartition("column") behind it and begin the ways there, or write it to a topic first'
        )


def _check_deletions_pass(step: Step, before: DataFrame, after: DataFrame) -> None:
    """Refuse a step that may keep a record without a value from the table of newest rows that it deletes from."""
    if (reason := may_drop_rows(before, after)) is not None:
        raise TopologyException(
            f"{step.call_site}: {step.text} in front of to_table() may drop rows ({reason}), and with them records "
            "without a value, which delete their key's row. Use where(...), which lets them pass; or put to_table() "
            "before this step, and to_stream() between both"
        )


def _apply(step: Step, rows: DataFrame, carried: tuple[str, ...], *, tombstones_pass: bool) -> DataFrame:
    where = str(step.call_site)
    if step.kind in {"select", "selectExpr"}:
        arguments = step.args[0] if len(step.args) == 1 and isinstance(step.args[0], list | tuple) else step.args
        chosen = _visible_star(arguments, rows)
        method = getattr(rows, step.kind)
        texts = [*chosen, *(quoted((name,)) for name in carried)]
        if step.kind == "select" and all(isinstance(text, str) for text in texts):
            after = checked(where, lambda: select_texts(rows, texts))
        else:
            after = checked(where, lambda: method(*texts))
        if any(after.columns.count(name) > 1 for name in carried):
            # A star of another kind, such as "* except (a)", has brought them.
            after = checked(where, lambda: method(*chosen))
    elif step.kind == "join":
        after = joined(step, rows, tombstones_pass=tombstones_pass)
    elif step.is_filter:
        after = checked(where, lambda: rows.where(_condition(step, rows)))
    elif step.kind == "fillna":
        # Beside a dict, which names them itself, columns have no effect.
        after = checked(where, lambda: rows.fillna(step.args[0], _looked_at(step, rows)))
    elif step.is_union:
        # What is put together are the legs' ends; that they fit is for whoever builds both to see.
        return rows
    elif step.kind == "transform":
        _have_streams_run(rows)
        after = checked(where, lambda: rows.transform(*step.args, **step.kwargs))
        lost = [name for name in carried if name not in after.columns]
        if lost:
            raise TopologyException(
                f"{where}: transform({getattr(step.args[0], '__name__', 'fn')}) drops the columns that say which task "
                "a row belongs to; inside transform use withColumn, where and drop, and select() outside of it"
            )
    else:
        after = checked(where, lambda: getattr(rows, step.kind)(*step.args, **step.kwargs))
        if step.kind == "withWatermark":
            # Spark has checked its arguments; what they mean is for the grouping behind it to know.
            return rows
    for name in carried:
        if name not in after.columns:
            raise TopologyException(f"{where}: {step.text} removes the reserved column {name!r}")
    if "*" in step.text or step.kind == "transform":
        refuse_hidden(where, step.text, after, rows)
    return after


def _filtered(step: Step, rows: DataFrame) -> DataFrame:
    """Keep the rows that the user wants, and those that delete: of those only the key is there to be looked at."""
    return checked(str(step.call_site), lambda: rows.where(F.col(hidden_columns.TOMBSTONE) | _condition(step, rows)))


def _looked_at(step: Step, rows: DataFrame) -> list[str]:
    """Return the columns whose nulls a step looks for: those that are named, or all but what few records have."""
    all_ = (field for field in without_kafka(visible(rows)) if (field.name, field.dataType) != ("headers", HEADERS))
    return list(step.kwargs.get("subset") or (quoted((field.name,)) for field in all_))


def _condition(step: Step, rows: DataFrame) -> Column:
    """Return what a filter lets through."""
    if step.kind != "dropna":
        (condition,) = step.args
        return F.expr(condition) if isinstance(condition, str) else condition
    how, thresh = step.kwargs["how"], step.kwargs.get("thresh")
    names = _looked_at(step, rows)
    there = []
    for name, field in zip(names, rows.select(*names).schema, strict=True):
        present = F.col(name).isNotNull()
        if isinstance(field.dataType, FloatType | DoubleType):
            present &= ~F.isnan(F.col(name))
        there.append(present)
    least = thresh if thresh is not None else len(there) if how == "any" else 1
    # Flat, as Spark's own is: a sum of hundreds would be nested as deep. An array of nothing would have no type.
    return F.size(F.filter(F.array(F.lit(False), *there), lambda one: one)) >= least


def _deleting(step: Step, rows: DataFrame, key: Sequence[str]) -> DataFrame:
    """Have rows that do not pass delete what their key has in the table: of them only the key is left."""
    others = [name for name in visible(rows).names if name not in key]

    def marked() -> DataFrame:
        passes = ~F.col(hidden_columns.TOMBSTONE) & F.coalesce(_condition(step, rows), F.lit(False))
        return null_where_deleting(rows.withColumn(hidden_columns.TOMBSTONE, ~passes), others)

    return checked(str(step.call_site), marked)


def null_where_deleting(rows: DataFrame, names: Iterable[str]) -> DataFrame:
    """Return rows of which those that delete have nulls in these columns."""
    left = {name: F.when(~F.col(hidden_columns.TOMBSTONE), F.col(quoted((name,)))) for name in names}
    return rows.withColumns(left) if left else rows


def joined(step: Step, rows: DataFrame, *, tombstones_pass: bool = False) -> DataFrame:
    """Join with a DataFrame, whose rows are sent to wherever the stream's are: a task's rows stay where they are.

    Args:
        step: the join.
        rows: of the stream.
        tombstones_pass: True in front of a table of newest rows: those that delete stay though they find nothing.

    Raises:
        TopologyException: a column is missing, or stands on both sides; or the DataFrame is a stream.
    """
    where = str(step.call_site)
    frame, on, how = step.args
    if frame.isStreaming:
        raise TopologyException(
            f"{where}: join() takes a DataFrame that has an end, from spark.read; for what a topic holds of each key "
            "use builder.table(topic)"
        )
    both = {name.lower() for name in visible(rows).names} & {name.lower() for name in frame.columns} - {
        name.lower() for name in on
    }
    if both:
        raise TopologyException(
            f"{where}: both sides of the join have a column {min(both)!r}; rename or drop one of them before it"
        )
    _have_streams_run(rows)
    names = (*rows.columns, *given_names(frame, on))

    def found() -> DataFrame:
        if not tombstones_pass or how != "inner":
            return rows.join(F.broadcast(frame), list(on), how)
        marked = F.broadcast(frame.withColumn(_FOUND, F.lit(True)))
        return rows.join(marked, list(on), "left").where(F.col(hidden_columns.TOMBSTONE) | F.col(_FOUND).isNotNull())

    return checked(where, lambda: select_names(found(), names))


def _have_streams_run(rows: DataFrame) -> None:
    """Keep Spark from leaving out the stream's side of a join once it sees, as it runs, that the other one is empty.

    Whatever a leg lets through, its last step has to report.
    """
    conf = rows.sparkSession.conf
    rules = [rule.strip() for rule in (conf.get(_EXCLUDED_RULES, "") or "").split(",") if rule.strip()]
    if _EMPTY_SIDES not in rules:
        conf.set(_EXCLUDED_RULES, ",".join([*rules, _EMPTY_SIDES]))


def given_names(frame: DataFrame, on: Sequence[str]) -> list[str]:
    """Return the columns that a join by ``on`` takes from a DataFrame: all but those."""
    keys = {name.lower() for name in on}
    return [name for name in frame.columns if name.lower() not in keys]


def refuse_hidden(where: str, text: str, rows: DataFrame, before: DataFrame) -> None:
    """Raise TopologyException if what is new in ``rows`` is made of hidden columns, which users cannot have meant."""
    if reads_hidden(rows, before):
        raise TopologyException(
            f'{where}: {text} takes in columns that are not yours, as a "*" inside of another expression does, or what '
            'is done to all columns; name yours there, such as F.struct("a", "b") or subset=["a", "b"]'
        )


def _visible_star(arguments: Any, rows: DataFrame) -> list[Any]:
    """Replace a lone ``*`` by the visible columns, so that hidden ones do not come twice."""
    expanded: list[Any] = []
    for argument in arguments:
        if is_star(argument):
            expanded += [quoted((name,)) for name in visible(rows).names]
        else:
            expanded.append(argument)
    return expanded


def visible(rows: DataFrame) -> StructType:
    """Return the columns that users see."""
    return StructType([field for field in rows.schema if not field.name.startswith(hidden_columns.PREFIX)])


def checked(where: str, build: Callable[[], DataFrame]) -> DataFrame:
    """Run a step on DataFrames, putting the user's line in front of Spark's own complaint."""
    try:
        with query_errors_unlogged():
            after = build()
            _ = after.schema
    except PySparkException as error:
        # Of an error that is not Spark's own, such as a requirement of the JVM's, there is no message.
        message = next(iter((error.getMessage() or str(error)).splitlines()), repr(error))
        message = _OWN_COLUMNS.sub("", message) + (_TWO_COLUMNS if _is_ambiguous(error) else "")
        raise TopologyException(f"{where}: {message}") from error
    except Py4JError as error:
        # What PySpark has no error of its own for: behind the JVM's class stand its stack's frames.
        cause = next((line for line in str(error).splitlines() if line.startswith(": ")), f": {error!r}")
        raise TopologyException(f"{where}{cause}") from error
    except SparkRelayError:
        raise
    except (TypeError, ValueError, ArithmeticError, AttributeError, AssertionError) as error:
        raise TopologyException(f"{where}: {error}") from error
    return after


@contextlib.contextmanager
def unambiguous(where: str) -> Iterator[None]:
    """Name the user's line where Spark finds two columns for one name, in whatever is made of rows."""
    try:
        yield
    except AnalysisException as error:
        if not _is_ambiguous(error):
            raise
        raise TopologyException(f"{where}: {str(error.getMessage()).splitlines()[0]}{_TWO_COLUMNS}") from error


def _is_ambiguous(error: PySparkException) -> bool:
    return bool(error.getCondition() == "AMBIGUOUS_REFERENCE")
