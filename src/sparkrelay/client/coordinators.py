"""Which broker coordinates which group and which transactional id.

Coordinators are looked up many keys at a time and remembered until a broker says that it is not the one any more.
"""

from __future__ import annotations

import enum
import functools
from typing import TYPE_CHECKING

from sparkrelay.client.broker_errors import ErrorCode, broker_error
from sparkrelay.client.exchanges import Pause, ask
from sparkrelay.client.messages import FindCoordinatorRequest

if TYPE_CHECKING:
    from collections.abc import Collection

    from sparkrelay.client.exchanges import Exchange
    from sparkrelay.client.kafka_client import KafkaClient
    from sparkrelay.errors import KafkaException

__all__ = ["CoordinatorCache", "CoordinatorKind", "is_moved"]

_MOVED = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.TRANSACTION_COORDINATOR_FENCED}
)
_STARTING = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
_LANE = ""


class CoordinatorKind(enum.IntEnum):
    """What a key of FindCoordinator names."""

    GROUP = 0
    TRANSACTION = 1


def is_moved(code: int) -> bool:
    """Tell whether an error code means: look the coordinator up again."""
    return code in _MOVED


class CoordinatorCache:
    """Remembers coordinators. Belongs to the thread of its client."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client
        self._nodes: dict[tuple[CoordinatorKind, str], int] = {}

    def get(self, kind: CoordinatorKind, key: str) -> int | None:
        """Return the broker that coordinates ``key``, or None if it must be looked up."""
        return self._nodes.get((kind, key))

    def forget(self, kind: CoordinatorKind, key: str) -> None:
        """Drop what is known of ``key``."""
        self._nodes.pop((kind, key), None)

    def locate(self, kind: CoordinatorKind, keys: Collection[str]) -> Exchange[None]:
        """Look up those of ``keys`` that are unknown, in one request, until all are known.

        Raises:
            KafkaException: an answer that repeating does not change, such as a missing permission.
        """
        backoff = self._client.config.retry_backoff()
        while missing := [key for key in keys if (kind, key) not in self._nodes]:
            answer = yield from ask(
                self._client,
                functools.partial(_request, kind, missing),
                node=lambda: None,
                backoff=backoff,
                lane=_LANE,
            )
            refused: KafkaException | None = None
            for found in answer.coordinators:
                if not found.error_code:
                    self._nodes[kind, found.key] = found.node_id
                    continue
                refused = broker_error(found.error_code, f"finding the coordinator of {kind.name.lower()} {found.key}")
                if found.error_code not in _STARTING and not refused.retriable:
                    raise refused
            if refused is not None:
                # A new cluster creates the coordinators' topic when it is first asked, which takes a moment.
                yield Pause(backoff.next(), refused)
            elif any(node not in self._client.metadata.brokers for node in self._nodes.values()):
                yield self._client.request_metadata(())
                self._nodes = {k: n for k, n in self._nodes.items() if n in self._client.metadata.brokers}
                if any((kind, key) not in self._nodes for key in keys):
                    unknown = broker_error(ErrorCode.COORDINATOR_NOT_AVAILABLE, "coordinator not in metadata")
                    yield Pause(backoff.next(), unknown)


def _request(kind: CoordinatorKind, keys: list[str]) -> FindCoordinatorRequest:
    # Many keys in one request came with version 4 (Kafka 3.0, KIP-699).
    return FindCoordinatorRequest(key_type=int(kind), coordinator_keys=keys, min_version=4)
