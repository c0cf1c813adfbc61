"""Java's Kafka Streams as a child process: a case in, its answer out."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from bench.streams_instance import with_compiled

from sparkrelay.devkafka.jars import kafka_classpath
from sparkrelay.java import require_java

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["KafkaStreamsOracle"]

_SOURCE = Path(__file__).with_name("Oracle.java")
_QUIET: Sequence[str] = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-XX:TieredStopAtLevel=1")


class KafkaStreamsOracle:
    """Kafka Streams' own classes, unmodified, behind ``Oracle.java``. Use it as a context manager."""

    def __init__(self) -> None:
        path = with_compiled([_SOURCE], kafka_classpath(artifact="kafka-streams-test-utils"), "oracle-topology")
        self._child = subprocess.Popen(
            [require_java(), *_QUIET, "-cp", path, "Oracle"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def answer(self, case: dict[str, Any]) -> dict[str, Any]:
        """Return what Kafka Streams says to a case."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(json.dumps(case) + "\n")
        self._child.stdin.flush()
        line = self._child.stdout.readline()
        if not line:
            raise RuntimeError(f"Kafka Streams ended with {self._child.wait()} at case {case['name']}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._child.stdin is not None
        self._child.stdin.close()
        self._child.wait(30)
