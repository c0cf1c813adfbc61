"""Lookup of the brokers that coordinate groups and transactional ids, and requests to them.

Coordinators are looked up many keys at a time and cached until a broker answers that it is not the coordinator.
"""

from __future__ import annotations

import enum
import functools
from typing import TYPE_CHECKING, Any

from sparkrelay.client.broker_errors import ErrorCode, broker_error
from sparkrelay.client.exchanges import Pause, ask
from sparkrelay.client.group_requests import find_coordinators

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from sparkrelay.client.backoff import Backoff
    from sparkrelay.client.exchanges import Exchange
    from sparkrelay.client.kafka_client import KafkaClient
    from sparkrelay.errors import KafkaException

_MOVED = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.TRANSACTION_COORDINATOR_FENCED}
)


class CoordinatorKind(enum.IntEnum):
    """The key types of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


def is_moved(code: int) -> bool:
    """Return whether an error code means that the coordinator must be looked up again."""
    return code in _MOVED


class CoordinatorCache:
    """A cache of coordinators. Belongs to the thread of its client."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client
        self._nodes: dict[tuple[CoordinatorKind, str], int] = {}

    def forget(self, kind: CoordinatorKind, key: str) -> None:
        """Have ``key`` looked up again."""
        self._nodes.pop((kind, key), None)

    def locate(self, kind: CoordinatorKind, keys: Collection[str]) -> Exchange[None]:
        """Look up the unknown ones of ``keys``, with one request, until all are known.

        Raises:
            KafkaException: an error that a retry does not change, such as a missing permission.
        """
        backoff = self._client.config.retry_backoff()
        while missing := [key for key in keys if (kind, key) not in self._nodes]:
            answer = yield from ask(
                self._client, functools.partial(find_coordinators, missing, int(kind)), backoff=backoff
            )
            refused: KafkaException | None = None
            for found in answer.coordinators:
                if not found.error_code:
                    self._nodes[kind, found.key] = found.node_id
                    continue
                refused = broker_error(
                    found.error_code,
                    f"finding the coordinator of {kind.name.lower()} {found.key}",
                    needs="READ" if kind is CoordinatorKind.GROUP else "WRITE",
                )
                if not refused.retriable:
                    raise refused
            if refused is not None:
                # A new cluster creates the coordinators' topic at the first request, which takes a moment.
                yield Pause(backoff.next(), refused)
            elif any(node not in self._client.metadata.brokers for node in self._nodes.values()):
                yield self._client.request_metadata(())
                self._nodes = {k: n for k, n in self._nodes.items() if n in self._client.metadata.brokers}
                if any((kind, key) not in self._nodes for key in keys):
                    unknown = broker_error(ErrorCode.COORDINATOR_NOT_AVAILABLE, "coordinator not in metadata")
                    yield Pause(backoff.next(), unknown)

    def ask(
        self, kind: CoordinatorKind, key: str, request: object, *, backoff: Backoff, lane: str = ""
    ) -> Exchange[Any]:
        """Send a request to a coordinator until it is answered; error codes are left to the caller."""
        while True:
            yield from self.locate(kind, (key,))
            response = self._client.send(request, node=self._nodes.get((kind, key)), lane=lane)
            yield response
            if response.error is None:
                return response.result()
            if not response.error.retriable:
                raise response.error
            self.forget(kind, key)
            yield Pause(backoff.next(), response.error)

    def ask_group(
        self,
        group: str,
        request: object,
        what: str,
        codes: Callable[[Any], Iterable[int]],
        *,
        final: Collection[int] = (),
        needs: str = "READ",
    ) -> Exchange[Any]:
        """Ask a group's coordinator until it answers without an error.

        Args:
            group: its name.
            request: repeated until it succeeds.
            what: names the exchange in errors.
            codes: returns the error codes of an answer; the first that is not 0 counts.
            final: retriable codes that are raised nevertheless.
            needs: the ACL operation on the group.

        Raises:
            KafkaException: an error that a retry does not change.
        """
        backoff = self._client.config.retry_backoff()
        while True:
            answer = yield from self.ask(CoordinatorKind.GROUP, group, request, backoff=backoff)
            code = next((code for code in codes(answer) if code), 0)
            if not code:
                return answer
            error = broker_error(code, what, needs=needs if code == ErrorCode.GROUP_AUTHORIZATION_FAILED else "READ")
            if is_moved(code):
                self.forget(CoordinatorKind.GROUP, group)
            elif not error.retriable or code in final:
                raise error
            # A transaction that is ending takes a moment only.
            yield Pause(backoff.next(first=0.01 if code == ErrorCode.UNSTABLE_OFFSET_COMMIT else None), error)
