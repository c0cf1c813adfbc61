"""What a step that emits a stream is on DataFrames: which rows it takes in, and what comes out of it."""

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

__all__ = ["EmittingPlan", "JoinSide", "Surroundings"]

S = TypeVar("S", bound=EmittingStep)


@dataclass(frozen=True, slots=True)
class JoinSide:
    """One stream of a join, as it comes to it.

    Attributes:
        columns: that users see, without Kafka's own.
        computed: what columns of it are computed from; those that are columns of its source as they are, are left out.
        join: what the topology says of it.
    """

    columns: StructType
    computed: Mapping[str, str]
    join: StreamJoin


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a plan may know of its pipeline.

    Attributes:
        legs: of the topology.
        ended: the repartition topics whose columns are known by now.
        side: returns one stream of a join as it comes to it.
        names: Kafka's names of the topology's topics.
        config: the instance's settings.
    """

    legs: Sequence[Leg]
    ended: Container[str]
    side: Callable[[Leg], JoinSide]
    names: TopicNames
    config: StreamsConfig


class EmittingPlan(Generic[S]):
    """Of one store; ``Plan`` in the module ``plan`` of each step's folder.

    Args:
        step: that keeps the store. Where several legs do, each has a step of its own, of which one is given here.
        around: the pipeline.
    """

    def __init__(self, step: S, around: Surroundings) -> None:
        self.step = step
        self.around = around

    @property
    def known(self) -> bool:
        """Whether all that comes to the step can be built."""
        return True

    def columns(self, before: StructType) -> StructType:
        """Return the columns behind the step.

        Args:
            before: those in front of it.

        Raises:
            TopologyException: a column is missing, or cannot be what it is named for.
        """
        raise NotImplementedError

    def computed(self, before: Mapping[str, str]) -> Mapping[str, str]:
        """Return what columns behind the step are computed from; ``before`` is the same in front of it."""
        return before

    def taken(self, step: S, rows: DataFrame, read: frozenset[str], hidden: Iterable[str]) -> DataFrame:
        """Return the rows that a leg's step takes in.

        Args:
            step: the leg's.
            rows: in front of it.
            read: the columns that anything reads behind it.
            hidden: the hidden columns that they carry.

        Raises:
            TopologyException: a column is missing.
        """
        raise NotImplementedError

    def runner(  # noqa: PLR0917 - what is known of one step
        self,
        leg: Leg,
        taken: DataFrame,
        columns: StructType,
        read: frozenset[str],
        computed: Mapping[str, str],
        fields: Mapping[str, Any],
    ) -> tuple[EmittingRunner, StructType]:
        """Return what workers run, and the columns that leave it.

        Args:
            leg: the leg.
            taken: the rows that it takes in.
            columns: all behind the step.
            read: those of them that anything reads.
            computed: what the columns in front of it are computed from.
            fields: what every step knows, and how this one writes its changelog.

        Raises:
            TopologyException: an interval is none, or a column cannot be kept.
        """
        raise NotImplementedError
