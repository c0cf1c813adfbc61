"""Definitions of messages that kafka-python does not bring, in the form of Kafka's own (KIP-848, KIP-1082).

kafka-python compiles a message class from a JSON file of the class's name; it finds ours because this is a package.
"""

from __future__ import annotations

__all__: list[str] = []
