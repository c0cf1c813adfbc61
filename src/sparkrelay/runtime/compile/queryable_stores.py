"""The stores of a pipeline that can be queried, and why others cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.errors import StateStoreNotAvailableException, UnknownStateStoreException

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkrelay.operators.table.run import TableRunner
    from sparkrelay.runtime.compile.prepared_legs import PreparedLegs
    from sparkrelay.topology import Topology


class QueryableStores:
    """The stores of a pipeline."""

    def __init__(self, topology: Topology, plans: Iterable[PreparedLegs]) -> None:
        """Take the topology, and the prepared legs of tasks and of global tables."""
        self._legs = (*topology.legs, *topology.global_tables)
        self._plans = tuple(plans)
        self._global = {leg.store for leg in topology.global_tables}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the stores that can be queried, sorted."""
        return tuple(
            sorted(
                leg.aggregation.store
                for leg in self._legs
                # Other rankings store rows without their places.
                if leg.aggregation is not None
                and not ((ranking := leg.aggregation.ranking) is not None and (ranking.ties or leg.source.changes))
            )
        )

    def is_global(self, name: str) -> bool:
        """Return whether a store belongs to a global table: each process has a copy."""
        return name in self._global

    def spec(self, name: str) -> TableRunner:
        """Return the runner of the step that keeps a store.

        Raises:
            UnknownStateStoreException: the store does not exist, or cannot be queried.
            StateStoreNotAvailableException: the store is a global table's, and the instance has no process yet.
        """
        for step in (leg.emitting for leg in self._legs if leg.emitting is not None and leg.store == name):
            raise UnknownStateStoreException(
                f"store {name!r} holds {step.holds}; look at what comes out of {step.text}"
            )
        spec = self._spec(name)
        if spec is None and name in self.names:
            raise StateStoreNotAvailableException(
                f"store {name!r} is not there yet: the instance has no process so far"
            )
        if spec is None:
            known = ", ".join(map(repr, self.names)) or "nothing"
            raise UnknownStateStoreException(f"the pipeline has no store {name!r}, but {known}")
        if spec.layout.holds:
            raise UnknownStateStoreException(f"store {name!r} holds {spec.layout.holds}; look at what comes out")
        return spec

    def _spec(self, name: str) -> TableRunner | None:
        return next((spec for plans in self._plans if (spec := plans.state(name)) is not None), None)
