"""The finalized features of a cluster and their levels (KIP-584)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkrelay.client.exchanges import ask
from sparkrelay.client.messages import ApiVersionsRequest

if TYPE_CHECKING:
    from sparkrelay.client.exchanges import Exchange
    from sparkrelay.client.kafka_client import KafkaClient

#: The feature of the transaction protocol; 0 on a cluster without it.
TRANSACTION_VERSION = "transaction.version"


def versions_request() -> Any:
    """Return an ApiVersions request."""
    return ApiVersionsRequest(client_software_name="sparkrelay", client_software_version="0")


def finalized_features(client: KafkaClient) -> Exchange[dict[str, int]]:
    """Ask any broker for the features and their levels, such as ``{"transaction.version": 2}``."""
    answer = yield from ask(client, versions_request)
    return {feature.name: feature.max_version_level for feature in answer.finalized_features or ()}
