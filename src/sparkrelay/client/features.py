"""What the cluster has switched on: finalized features and their levels (KIP-584)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.client.exchanges import ask
from sparkrelay.client.messages import ApiVersionsRequest

if TYPE_CHECKING:
    from sparkrelay.client.exchanges import Exchange
    from sparkrelay.client.kafka_client import KafkaClient

__all__ = ["TRANSACTION_VERSION", "finalized_features"]

#: Name of the feature that says how transactions work; a cluster without it is at 0.
TRANSACTION_VERSION = "transaction.version"


def finalized_features(client: KafkaClient) -> Exchange[dict[str, int]]:
    """Ask any broker for the features and their levels, such as ``{"transaction.version": 2}``."""
    answer = yield from ask(
        client,
        lambda: ApiVersionsRequest(client_software_name="sparkrelay", client_software_version="0"),
        node=lambda: None,
        backoff=client.config.retry_backoff(),
    )
    return {feature.name: feature.max_version_level for feature in answer.finalized_features or ()}
