"""Steps that emit a stream, on DataFrames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sparkrelay.operators.emitting.step import EmittingStep

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from sparkrelay.config import StreamsConfig
    from sparkrelay.operators.emitting.run import EmittingRunner
    from sparkrelay.operators.stream_join.step import StreamJoin
    from sparkrelay.runtime.topics.topic_names import TopicNames
    from sparkrelay.topology import Leg

S = TypeVar("S", bound=EmittingStep)


@dataclass(frozen=True, slots=True)
class JoinSide:
    """One input stream of a join.

    Attributes:
        columns: visible columns without Kafka's.
        computed: column -> expression, without unchanged source columns.
        join: the join in the topology.
    """

    columns: StructType
    computed: Mapping[str, str]
    join: StreamJoin


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The pipeline, as far as plans need it.

    Attributes:
        legs: the topology's legs.
        ended: repartition topics whose columns are known.
        side: returns one input stream of a join.
        names: Kafka's names of topics.
        config: the instance's settings.
    """

    legs: Sequence[Leg]
    ended: Container[str]
    side: Callable[[Leg], JoinSide]
    names: TopicNames
    config: StreamsConfig


class EmittingPlan(Generic[S]):
    """The plan of one store; subclassed as ``Plan`` in the ``plan`` module of each operator.

    Args:
        step: a step with the store. Several legs can share a store, each with its own step; any of them.
        around: the pipeline.
    """

    def __init__(self, step: S, around: Surroundings) -> None:
        self.step = step
        self.around = around

    @property
    def known(self) -> bool:
        """Whether the columns of all inputs are known."""
        return True

    def columns(self, before: StructType) -> StructType:
        """Return the step's output columns, given its input columns.

        Raises:
            TopologyException: a column is missing or unsuitable.
        """
        raise NotImplementedError

    def computed(self, before: Mapping[str, str]) -> Mapping[str, str]:
        """Return output column -> expression, given the same of the input."""
        return before

    def taken(self, step: S, rows: DataFrame, read: frozenset[str], hidden: Iterable[str]) -> DataFrame:
        """Return the columns of the step's input that it needs.

        Args:
            step: the leg's step.
            rows: its input.
            read: columns that are read downstream.
            hidden: hidden columns of the input.

        Raises:
            TopologyException: a column is missing.
        """
        raise NotImplementedError

    def runner(  # noqa: PLR0917
        self,
        leg: Leg,
        taken: DataFrame,
        columns: StructType,
        read: frozenset[str],
        computed: Mapping[str, str],
        fields: Mapping[str, Any],
    ) -> tuple[EmittingRunner, StructType]:
        """Return the runner for workers, and its output columns.

        Args:
            leg: the leg.
            taken: the step's input (:meth:`taken`).
            columns: all output columns.
            read: output columns that are read downstream.
            computed: input column -> expression.
            fields: the fields of ``StoreSpec``.

        Raises:
            TopologyException: an interval is invalid, or a column cannot be stored.
        """
        raise NotImplementedError
