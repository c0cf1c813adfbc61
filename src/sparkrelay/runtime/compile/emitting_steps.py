"""The stateful steps that emit a stream, on DataFrames: which rows they take in, and what comes out of them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from sparkrelay.runtime.compile.carried_columns import EMITTED
from sparkrelay.runtime.compile.deduplication import (
    deduplicated_columns,
    deduplication_input,
    deduplication_output,
    deduplication_spec,
)
from sparkrelay.runtime.compile.delays import delay_input, delay_spec, delayed_columns
from sparkrelay.runtime.compile.row_steps import visible
from sparkrelay.runtime.compile.schemas import hidden_fields
from sparkrelay.runtime.compile.stream_joins import JoinSides, join_input, join_output, join_spec, nullable
from sparkrelay.runtime.compile.transformations import (
    transformation_input,
    transformation_spec,
    transformed_columns,
)
from sparkrelay.runtime.compile.watermarks import timed_fields
from sparkrelay.runtime.worker.operators.deduplication import deduplicate_leg
from sparkrelay.runtime.worker.operators.delays import delay_leg
from sparkrelay.runtime.worker.operators.stream_joins import join_leg
from sparkrelay.runtime.worker.operators.transformations import transform_leg
from sparkrelay.topology import Delay, StreamJoin, Transformation

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from sparkrelay.config import StreamsConfig
    from sparkrelay.runtime.compile.stream_joins import JoinSide
    from sparkrelay.runtime.topics.topic_names import TopicNames
    from sparkrelay.topology import EmittingStep, Leg

__all__ = ["EmittingSteps"]


class EmittingSteps:
    """Those of a topology."""

    def __init__(
        self,
        legs: Sequence[Leg],
        ended: Container[str],
        side: Callable[[Leg], JoinSide],
        *,
        names: TopicNames,
        config: StreamsConfig,
    ) -> None:
        """Take what they share.

        Args:
            legs: of the topology.
            ended: the repartition topics whose columns are known by now.
            side: returns one stream of a join as it comes to it.
            names: Kafka's names of the topology's topics.
            config: the instance's settings.
        """
        self._legs = legs
        self._names = names
        self._config = config
        self._sides = JoinSides(legs, ended, side)
        #: store -> the columns behind its step
        self._columns: dict[str, StructType] = {}

    def known(self, step: EmittingStep) -> bool:
        """Return whether all that comes to a step can be built."""
        return not isinstance(step, StreamJoin) or self._sides.known(step)

    def columns(self, step: EmittingStep, rows: DataFrame) -> StructType:
        """Return the columns behind a step.

        Args:
            step: the step.
            rows: in front of it.

        Raises:
            TopologyException: a column is missing, or cannot be what it is named for.
        """
        if step.store not in self._columns:
            if isinstance(step, StreamJoin):
                columns = join_output(self._sides.of(step))
            elif isinstance(step, Delay):
                columns = delayed_columns(step, visible(rows))
            elif isinstance(step, Transformation):
                columns = transformed_columns(step)
            else:
                columns = deduplicated_columns(step, visible(rows))
            self._columns[step.store] = columns
        return self._columns[step.store]

    def computed(self, step: EmittingStep, before: Mapping[str, str]) -> Mapping[str, str]:
        """Return what columns behind a step are computed from; those of a processor it makes itself.

        Args:
            step: the step.
            before: the same of the columns in front of it; of a join it is known of both streams.
        """
        if isinstance(step, StreamJoin):
            return {**self._sides.of(step)["right"].computed, **self._sides.of(step)["left"].computed}
        return {} if isinstance(step, Transformation) else before

    def taken(self, step: EmittingStep, rows: DataFrame, read: frozenset[str], hidden: Iterable[str]) -> DataFrame:
        """Return the rows that a step takes in.

        Args:
            step: the step.
            rows: in front of it.
            read: the columns that anything reads behind it.
            hidden: the hidden columns that they carry.

        Raises:
            TopologyException: a column is missing.
        """
        if isinstance(step, StreamJoin):
            return join_input(step, rows, self._sides.of(step)[step.side], read, hidden)
        if isinstance(step, Delay):
            return delay_input(step, rows, read, hidden)
        if isinstance(step, Transformation):
            return transformation_input(step, rows, hidden)
        return deduplication_input(step, rows, read, hidden)

    def prepared(  # noqa: PLR0917 - what is known of one step
        self,
        leg: Leg,
        emitting: EmittingStep,
        taken: DataFrame,
        read: frozenset[str],
        computed: Mapping[str, str],
        step: Mapping[str, Any],
    ) -> tuple[Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], StructType]:
        """Return the step of a leg, and the columns that leave it.

        Args:
            leg: the leg.
            emitting: its stateful step.
            taken: what it takes in.
            read: the columns that anything reads behind it.
            computed: what the columns in front of it are computed from.
            step: what every step knows, and how this one writes its changelog.

        Raises:
            TopologyException: an interval is none, or a column cannot be kept.
        """
        if isinstance(emitting, StreamJoin):
            shared: dict[str, Any] = {"legs": self._legs, "names": self._names, "config": self._config, "step": step}
            spec = join_spec(leg, emitting, self._sides.of(emitting), read, taken, **shared)
            kept = [field for field in join_output(self._sides.of(emitting)) if field.name in spec.output.names]
            return functools.partial(join_leg, spec), nullable([*kept, *hidden_fields(EMITTED)])
        columns = self._columns[emitting.store]
        timed: dict[str, Any] = {
            "legs": self._legs,
            "fields": {**step, **timed_fields(leg, emitting, taken, self._names, self._config)},
        }
        if isinstance(emitting, Delay):
            waiting, output = delay_spec(leg, emitting, taken, columns, read, computed, **timed)
            return functools.partial(delay_leg, waiting), output
        if isinstance(emitting, Transformation):
            changed, output = transformation_spec(leg, emitting, taken, columns, read, computed, **timed)
            return functools.partial(transform_leg, changed), output
        output = deduplication_output(columns, read)
        first = deduplication_spec(leg, emitting, taken, output, computed, **timed)
        return functools.partial(deduplicate_leg, first), output
