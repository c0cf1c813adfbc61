"""A real Kafka as a child process, for demos and tests.

See ``docs/internals/devkafka.md`` for why it is built this way.
"""

from __future__ import annotations

from sparkrelay.devkafka.broker import DevKafka
from sparkrelay.devkafka.jars import KAFKA_VERSION
from sparkrelay.devkafka.settings import Listener

__all__ = ["KAFKA_VERSION", "DevKafka", "Listener"]
