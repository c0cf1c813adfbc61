"""Steps that emit a stream, as the compiler plans them."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sparkrelay.operators.emitting.step import EmittingStep

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql.types import StructType

    from sparkrelay.config import StreamsConfig
    from sparkrelay.operators.emitting.run import EmittingRunner
    from sparkrelay.runtime.topics.topic_names import TopicNames
    from sparkrelay.topology import Leg

S = TypeVar("S", bound=EmittingStep)

#: In the place of names: every column.
ALL = frozenset({"*"})


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The pipeline, as far as plans need it.

    Attributes:
        legs: the topology's legs.
        names: Kafka's names of topics.
        config: the instance's settings.
    """

    legs: Sequence[Leg]
    names: TopicNames
    config: StreamsConfig


class EmittingPlan(Generic[S]):
    """The plan of a step; subclassed as ``Plan`` in the ``plan`` module of each operator.

    Args:
        step: the step. Several legs can share a store, each with its own step.
        around: the pipeline.
    """

    def __init__(self, step: S, around: Surroundings) -> None:
        self.step = step
        self.around = around

    def needs(self, read: frozenset[str]) -> frozenset[str]:
        """Return which of the columns that come to the step it needs, given those that are read behind it."""
        raise NotImplementedError

    def runner(
        self, leg: Leg, taken: StructType, read: frozenset[str], fields: Mapping[str, Any]
    ) -> tuple[EmittingRunner, StructType]:
        """Return the runner for workers, and its output columns.

        Args:
            leg: the leg.
            taken: the columns that come to it, hidden ones included.
            read: output columns that are read downstream.
            fields: the fields of ``StoreSpec``.

        Raises:
            TopologyException: an interval is invalid, or a column cannot be stored.
        """
        raise NotImplementedError


def plan_of(step: EmittingStep, around: Surroundings) -> EmittingPlan[Any]:
    """Return the plan of a step, which is in the step's folder."""
    folder = type(step).__module__.rpartition(".")[0]
    module = importlib.import_module(f"{folder}.plan")  # noqa: TID251 - a name of ours
    plan: EmittingPlan[Any] = module.Plan(step, around)
    return plan
