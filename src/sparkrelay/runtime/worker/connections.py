"""What a Python worker keeps between micro-batches: connections and open stores.

Only an optimization: an error, unread input or a minute's idleness ends a worker, and the next one opens them again.
"""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkrelay.client.config import ClientConfig
from sparkrelay.client.file_log import LOG_DIRECTORY, FileFetcher, FileProducer
from sparkrelay.client.kafka_client import KafkaClient
from sparkrelay.client.produce import Producer
from sparkrelay.consumer.fetch.bounded import BoundedFetcher
from sparkrelay.runtime.worker.own.memory import freeze_loaded_objects
from sparkrelay.state import TaskStore

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger(__name__)

_BOOTSTRAP_SECONDS = 30.0
#: One worker closes a task that leaves. Others still have its store open, which keeps the disk space of a removed copy:
#: it is removed after ``state.cleanup.delay.ms``, by default ten minutes.
_UNUSED_SECONDS = 300.0
_LOOK_SECONDS = 30.0

_fetchers: dict[str, BoundedFetcher | FileFetcher] = {}
#: With their connections; those that write files have none.
_producers: dict[str, tuple[KafkaClient | None, Producer | FileProducer]] = {}
_stores: dict[str, _Open] = {}
_looked_at = -math.inf


@dataclass(slots=True)
class _Open:
    store: TaskStore
    map_limit: int
    used_at: float


def _key(settings: Mapping[str, Any]) -> str:
    return repr(sorted(settings.items()))


def fetcher(settings: Mapping[str, Any]) -> BoundedFetcher | FileFetcher:
    """Return this worker's fetcher for the cluster, or directory, in ``settings``."""
    key = _key(settings)
    if key not in _fetchers:
        _fetchers[key] = (FileFetcher if LOG_DIRECTORY in settings else BoundedFetcher)(settings)
    return _fetchers[key]


def forget_fetcher(settings: Mapping[str, Any]) -> None:
    """Close the fetcher after an error; the next batch opens another."""
    found = _fetchers.pop(_key(settings), None)
    if found is not None:
        found.close()


def producer(settings: Mapping[str, Any]) -> Producer | FileProducer:
    """Return this worker's producer for the cluster, or directory, in ``settings``."""
    key = _key(settings)
    if key not in _producers and LOG_DIRECTORY in settings:
        _producers[key] = None, FileProducer(settings)
    elif key not in _producers:
        client = KafkaClient(ClientConfig.from_dict(settings))
        try:
            client.bootstrap(_BOOTSTRAP_SECONDS)
        except BaseException:
            client.close()
            raise
        _producers[key] = client, Producer(client)
    return _producers[key][1]


def forget_producer(settings: Mapping[str, Any]) -> None:
    """Close the producer after an error: queued records must not be sent in the next transaction."""
    client, _ = _producers.pop(_key(settings), (None, None))
    if client is not None:
        client.close()


def store(directory: str, *, map_limit: int) -> TaskStore:
    """Return the open store of a task directory.

    It is opened again if the directory was replaced, or another instance of this driver has another limit.
    """
    found = _stores.get(directory)
    if found is not None:
        if found.map_limit == map_limit and not found.store.environment.replaced:
            found.used_at = time.monotonic()
            return found.store
        forget_store(directory)
    opened = TaskStore.open(Path(directory), map_limit=map_limit, in_worker=True)
    _stores[directory] = _Open(opened, map_limit, time.monotonic())
    return opened


def begin_step() -> None:
    """Prepare this worker for a step, which has no store in use yet."""
    freeze_loaded_objects()
    close_unused()


def close_unused() -> None:
    """Close stores that are gone from the disk, or were not used for a while; only checks now and then."""
    global _looked_at  # noqa: PLW0603 - one worker, one look
    now = time.monotonic()
    if now - _looked_at < _LOOK_SECONDS:
        return
    _looked_at = now
    for directory, found in list(_stores.items()):
        if now - found.used_at > _UNUSED_SECONDS or found.store.environment.replaced:
            forget_store(directory)


def forget_store(directory: str, *, clean: bool = False) -> None:
    """Close a store: before its directory is wiped, after an error, or (``clean``) synced, as its task leaves."""
    found = _stores.pop(directory, None)
    if found is not None:
        found.store.close(clean=clean)
