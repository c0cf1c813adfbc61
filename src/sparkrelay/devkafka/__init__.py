"""A real Kafka as a child process, for demos and tests; ``docs/internals/devkafka.md`` explains the design."""

from __future__ import annotations

from sparkrelay.devkafka.broker import DevKafka
from sparkrelay.devkafka.jars import KAFKA_VERSION
from sparkrelay.devkafka.settings import Listener

__all__ = ["KAFKA_VERSION", "DevKafka", "Listener"]
