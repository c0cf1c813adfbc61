"""A connection to a Kafka cluster: brokers, requests, metadata; driven by calls of ``poll``.

A ``KafkaClient`` belongs to the thread that polls it. It starts no thread and takes no lock, so the same class serves
the consumer's network thread, Spark's single-threaded Python workers, and the driver's transactions.

A broker handles one request of a connection at a time. Requests that it may hold back (JoinGroup, a long Fetch) would
delay all later ones, so ``send`` takes a *lane*: each (broker, lane) has its own connection.

Refused: kafka-python's ``KafkaConnectionManager`` (it never forgets a refused login, fails requests during a reconnect
back-off without their cause, and refreshes metadata on its own timer).
"""

from __future__ import annotations

import logging
import math
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

import kafka.errors

from sparkrelay.client.messages import MetadataRequest
from sparkrelay.client.metadata import Broker, Metadata
from sparkrelay.client.transport.connection import BrokerConnection, net_settings
from sparkrelay.client.transport.loop import Loop
from sparkrelay.client.transport.oauth import TokenSource
from sparkrelay.client.transport.response import Response
from sparkrelay.client.transport.tls import make_context
from sparkrelay.client.transport.transports import Transports, broker_name, translate
from sparkrelay.errors import (
    AuthenticationException,
    DisconnectException,
    KafkaException,
    TimeoutException,
    UnsupportedVersionException,
    WakeupException,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from sparkrelay.client.backoff import Backoff
    from sparkrelay.client.config import ClientConfig

__all__ = ["KafkaClient", "Response", "metadata_request"]

_log = logging.getLogger(__name__)

_METADATA_LANE: Final = ""
_WARN_AGAIN_SECONDS: Final = 5.0


@dataclass(slots=True)
class _Loss:
    """The newest of a broker's lost connections in a row."""

    backoff: Backoff
    until: float
    error: KafkaException
    warned: str
    warned_at: float


class KafkaClient:
    """Connections to one cluster, and its metadata.

    Without ``bootstrap``, requests without a node go to a bootstrap address until metadata is known.

    Args:
        config: how to reach the cluster.
        loop: shared with other clients of the same thread and driven and closed by its owner; None for its own.

    Raises:
        ConfigException: a file of certificates or keys cannot be read.
    """

    def __init__(self, config: ClientConfig, *, loop: Loop | None = None) -> None:
        self.config = config
        tls = make_context(config)  # first, so that a bad file is reported before anything is opened
        self.metadata = Metadata()
        self._settings = net_settings(config)
        self._owns_loop = loop is None
        self._net = Loop(config.client_id) if loop is None else loop
        self._transports = Transports(self._net, config, tls, socket_options=self._settings["socket_options"])
        self._connections: dict[tuple[int, str], BrokerConnection] = {}
        self._losses: dict[int, _Loss] = {}
        self._versions: dict[int, dict[int, tuple[int, int]]] = {}
        # Bootstrap addresses are brokers with negative ids, as in Kafka's own clients.
        self._seeds = {-1 - i: Broker(-1 - i, h, p) for i, (h, p) in enumerate(config.servers())}
        self._pending: set[Response] = set()
        self._last_error: KafkaException | None = None
        self._closed = False
        self._interrupted = False
        self._tokens: TokenSource | None = None
        if config.security_protocol.startswith("SASL") and config.sasl_mechanism == "OAUTHBEARER":
            self._tokens = TokenSource(self._net, config)
            self._settings["sasl_oauth_token_provider"] = self._tokens
        self._connecting: set[Any] = set()
        self._idle_check: Any = None
        self._schedule_idle_check()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- driving ----------------------------------------------------------------------------------------------------

    def poll(self, timeout: float) -> None:
        """Run one turn: wait up to ``timeout`` seconds for events and handle them.

        Raises:
            WakeupException: the client was interrupted.
        """
        self._check_open()
        if self._interrupted:
            raise WakeupException("the Kafka client was interrupted")
        self._net.turn(timeout)

    def wait(self, responses: Collection[Response], timeout: float) -> None:
        """Poll until all responses are done, whatever their outcome.

        Raises:
            TimeoutException: some are still outstanding after ``timeout`` seconds.
        """
        deadline = time.monotonic() + timeout
        while any(not response.done for response in responses):
            left = deadline - time.monotonic()
            if left <= 0:
                missing = sum(not response.done for response in responses)
                raise TimeoutException(
                    f"{missing} of {len(responses)} requests unanswered after {timeout:g} s by "
                    f"{self.config.bootstrap_servers}{self._because()}"
                )
            self.poll(left)

    def sleep(self, seconds: float) -> None:
        """Poll for ``seconds``, so that other requests continue."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self.poll(left)

    def wakeup(self) -> None:
        """End a waiting ``poll``, or the next one. Thread-safe."""
        self._net.wakeup()

    def interrupt(self) -> None:
        """Abort the current ``poll`` and every later one with WakeupException. Thread-safe.

        For a thread that waits for the client's owner to end.
        """
        self._interrupted = True
        self._net.wakeup()

    def call_soon_threadsafe(self, callback: Callable[[], object]) -> None:
        """Have the polling thread call ``callback()``. Thread-safe.

        Raises:
            DisconnectException: the client is closed.
        """
        try:
            self._net.call_soon_threadsafe(lambda: self._run(callback))
        except RuntimeError as error:
            raise DisconnectException("the Kafka client is closed", retriable=False) from error

    def _run(self, callback: Callable[[], object]) -> None:
        try:
            callback()
        except Exception:  # noqa: BLE001 - logged
            _log.exception("a callback on the Kafka client's thread failed")

    def close(self) -> None:
        """Close all connections; outstanding responses fail with DisconnectException. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._idle_check is not None:
            self._net.cancel(self._idle_check)
        for connection in list(self._connections.values()):
            connection.close(kafka.errors.KafkaConnectionError("the Kafka client was closed"))
        for response in list(self._pending):
            self._finish(response, None, DisconnectException("the Kafka client was closed"))
        self._connections.clear()
        for task in list(self._connecting):
            self._net.cancel(task)
        if self._owns_loop:
            self._net.close()

    # -- requests ---------------------------------------------------------------------------------------------------

    def send(self, request: Any, *, node: int | None = None, lane: str = "", timeout: float | None = None) -> Response:
        """Send a request in the newest version that both sides know, within the request's own bounds.

        Never raises for network errors: the response then fails, within a later ``poll``.

        Args:
            request: a message of ``client.messages``, perhaps with ``min_version`` and ``max_version``.
            node: broker id; None for the least loaded one.
            lane: which connection to that broker; requests of a lane are answered in order.
            timeout: seconds after which the request and its connection fail; None for ``request.timeout.ms``.
        """
        self._check_open()
        if node is None:
            node = self.least_loaded_node()
        response = Response(node)
        self._pending.add(response)
        try:
            connection = self._connection(node, lane)
        except KafkaException as error:
            self._finish_soon(response, error)
            return response
        timeout_ms = self.config.request_timeout_ms if timeout is None else timeout * 1000
        try:
            future = connection.send_request(request, request_timeout_ms=timeout_ms)
        except RuntimeError as error:
            # The connection was lost and the loop has not reported it yet.
            self._finish_soon(response, DisconnectException(f"connection to {self._name(node)} lost: {error}"))
            return response
        if future.is_done:
            self._finish_soon(response, translate(future.exception, self._name(node), request, self.config))
            return response
        future.add_callback(lambda message: self._finish(response, message, None))
        future.add_errback(
            lambda error: self._finish(response, None, translate(error, self._name(node), request, self.config))
        )
        return response

    def drop(self, node: int, lane: str, why: str) -> None:
        """Close a connection, if any; its requests fail with ``why``, and a back-off begins."""
        connection = self._connections.get((node, lane))
        if connection is not None:
            connection.close(kafka.errors.KafkaConnectionError(why))

    def request_metadata(self, topics: Iterable[str] | None) -> Response:
        """Request the metadata of brokers and topics; once the response is done, ``metadata`` has it.

        Args:
            topics: names, which are never created by this (none: brokers only); None for all topics.
        """
        names = None if topics is None else tuple(dict.fromkeys(topics))
        response = self.send(metadata_request(names), lane=_METADATA_LANE)
        response.add_done_callback(lambda done: self._take_metadata(done, names))
        return response

    def _take_metadata(self, response: Response, requested: Iterable[str] | None) -> None:
        if response.error is not None:
            return
        self.metadata.update(response.result(), requested=requested)
        live = self.metadata.brokers
        for node, lane in list(self._connections):
            if node >= 0 and node not in live:
                self._connections[node, lane].close(kafka.errors.KafkaConnectionError("broker left the cluster"))

    def bootstrap(self, timeout: float, *, refused_timeout: float = math.inf) -> None:
        """Find the cluster's brokers through the bootstrap servers.

        Args:
            timeout: seconds to wait for an answer.
            refused_timeout: seconds to wait while every address refuses connections, so nothing listens there.

        Raises:
            TimeoutException: none answered; the message names ``bootstrap.servers`` and the last error.
            AuthenticationException: a broker refused our credentials.
            UnsupportedVersionException: a broker is too old.
        """
        began = time.monotonic()
        while True:
            bound = min(timeout, refused_timeout) if self._all_refuse() else timeout
            deadline = began + bound
            left = deadline - time.monotonic()
            if left > 0:
                response = self.request_metadata(())
                try:
                    self.wait([response], left)
                except TimeoutException:
                    left = 0
                else:
                    error = response.error
                    if error is None and self.metadata.brokers:
                        return
                    if isinstance(error, AuthenticationException | UnsupportedVersionException):
                        raise error
                    pause = self.config.reconnect_backoff_ms / 1000
                    if (left := deadline - time.monotonic()) > 0:
                        self.sleep(min(pause, left))
            if left <= 0:
                raise TimeoutException(
                    f"no Kafka broker answered at bootstrap.servers={self.config.bootstrap_servers} within "
                    f"{bound:g} s{self._because()}. Is the address right, and the broker running?"
                )

    # -- state -------------------------------------------------------------------------------------------------------

    def is_connected(self, node: int, lane: str = "") -> bool:
        """Return whether a connection to a broker is up."""
        connection = self._connections.get((node, lane))
        return connection is not None and connection.connected

    def in_flight(self, node: int, lane: str = "") -> int:
        """Return the number of unanswered requests of a connection."""
        connection = self._connections.get((node, lane))
        return 0 if connection is None else len(connection.in_flight_requests) + len(connection._request_buffer)  # noqa: SLF001

    def supports(self, api: Any, version: int) -> bool:
        """Return whether we, and every broker connected so far, speak a version of a message class."""
        if not self._versions or version > api.max_version:
            return False
        ranges = [known.get(api.API_KEY, (0, -1)) for known in self._versions.values()]
        return all(low <= version <= high for low, high in ranges)

    def least_loaded_node(self) -> int | None:
        """Return the best broker for any request: connected and idle if possible; None if none is known."""
        nodes = list(self.metadata.brokers)
        random.shuffle(nodes)
        ready = [n for n in nodes if self._delay(n) == 0]
        if not ready:
            # All known brokers are away; perhaps the cluster moved, so try the bootstrap addresses as well.
            seeds = list(self._seeds)
            random.shuffle(seeds)
            ready = [n for n in seeds if self._delay(n) == 0] or nodes + seeds
            return min(ready, key=self._delay, default=None)
        return min(ready, key=lambda n: (not self.is_connected(n), self.in_flight(n)))

    # -- connections ------------------------------------------------------------------------------------------------

    def _address(self, node: int) -> Broker | None:
        return self._seeds.get(node) if node < 0 else self.metadata.brokers.get(node)

    def _name(self, node: int | None) -> str:
        broker = None if node is None else self._address(node)
        return f"broker {node}" if broker is None else broker_name(broker)

    def _delay(self, node: int) -> float:
        loss = self._losses.get(node)
        return 0.0 if loss is None else max(0.0, loss.until - time.monotonic())

    def _all_refuse(self) -> bool:
        """Return whether every bootstrap address refused its newest connection."""
        losses = [self._losses.get(node) for node in self._seeds]
        return all(loss is not None and "ECONNREFUSED" in str(loss.error) for loss in losses)

    def _because(self) -> str:
        return f"; last error: {self._last_error}" if self._last_error is not None else ""

    def _connection(self, node: int | None, lane: str) -> BrokerConnection:
        if node is None:
            raise DisconnectException("no broker is known")
        connection: BrokerConnection | None = self._connections.get((node, lane))
        if connection is not None and not connection.closed:
            return connection
        broker = self._address(node)
        if broker is None:
            raise DisconnectException(
                f"broker {node} is not in the cluster's metadata; known: {sorted(self.metadata.brokers)}"
            )
        if self._delay(node) > 0:
            raise self._losses[node].error
        connection = BrokerConnection(self._net, node_id=node, **self._settings)
        self._connections[node, lane] = connection
        connection.init_future.add_callback(lambda _: self._connected(node, connection))
        connection.close_future.add_both(lambda error: self._lost(node, lane, connection, error))
        connection.tokens = self._tokens
        deadline = time.monotonic() + self.config.socket_connection_setup_timeout_ms / 1000
        task = self._net.call_soon(lambda: self._connect(connection, broker, deadline))
        self._connecting.add(task)
        connection.init_future.add_both(lambda _: self._connecting.discard(task))
        # kafka.net bounds some of the steps; this bounds all of them, such as a port that accepts and stays silent.
        timer = self._net.call_at(deadline, lambda: self._give_up(connection, task))
        connection.init_future.add_both(lambda _: self._net.cancel(timer))
        return connection

    def _give_up(self, connection: BrokerConnection, task: Any) -> None:
        if connection.initializing:
            limit = self.config.socket_connection_setup_timeout_ms
            connection.close(
                kafka.errors.KafkaTimeoutError(
                    f"{connection.doing} took longer than socket.connection.setup.timeout.ms={limit}; is "
                    f"security.protocol={self.config.security_protocol} what the port speaks?"
                )
            )
            self._net.cancel(task)

    async def _connect(self, connection: BrokerConnection, broker: Broker, deadline: float) -> None:
        transport = None
        try:
            transport = await self._transports.open(connection, broker, deadline)
            if connection.closed or self._closed:
                return
            connection.doing = "asking for versions"
            connection.connection_made(transport)
            transport = None  # the connection's own now
            # Its failures arrive at the connection's futures. Our bound ends first, because it names the slow step.
            await connection.initialize(timeout_at=deadline + 1.0)
        except Exception as error:  # noqa: BLE001 - the waiting requests get it
            connection.connection_lost(error)
        finally:
            if transport is not None:
                transport.abort()

    def _connected(self, node: int, connection: BrokerConnection) -> None:
        if self._losses.pop(node, None) is not None:
            _log.info("connected to %s again", self._name(node))
        self._last_error = None
        self._versions[node] = connection.broker_version_data.api_versions

    def _lost(self, node: int, lane: str, connection: BrokerConnection, error: Any) -> None:
        if self._connections.get((node, lane)) is connection:
            del self._connections[node, lane]
        if error is None or self._closed:
            return
        before = self._losses.get(node)
        backoff = self.config.reconnect_backoff() if before is None else before.backoff
        cause = translate(error, self._name(node), None, self.config)
        self._last_error = cause
        now, text = time.monotonic(), str(cause)
        # Once for each loss, and again if the cause has changed.
        warn = before is None or (text != before.warned and now - before.warned_at >= _WARN_AGAIN_SECONDS)
        warned, warned_at = (text, now) if warn or before is None else (before.warned, before.warned_at)
        self._losses[node] = _Loss(backoff, now + backoff.next(), cause, warned, warned_at)
        _log.log(logging.WARNING if warn else logging.DEBUG, "%s; trying again with back-off", cause)

    def _schedule_idle_check(self) -> None:
        idle = self.config.connections_max_idle_ms / 1000
        if idle <= 0:
            return
        now = time.monotonic()
        for connection in list(self._connections.values()):
            busy = connection.in_flight_requests or not connection.connected
            if not busy and now - connection.transport.last_activity > idle:
                connection.close()
        self._idle_check = self._net.call_later(max(1.0, idle / 4), self._schedule_idle_check)

    # -- outcomes ---------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise DisconnectException("the Kafka client is closed", retriable=False)

    def _finish(self, response: Response, message: Any, error: KafkaException | None) -> None:
        self._pending.discard(response)
        response.finish(message, error)

    def _finish_soon(self, response: Response, error: KafkaException) -> None:
        self._net.call_soon(lambda: self._finish(response, None, error))


def metadata_request(topics: Iterable[str] | None, *, with_operations: bool = False) -> Any:
    """Return Metadata for topics (None: all), perhaps with the operations that this user may do with each."""
    return MetadataRequest(
        topics=None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in topics],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=with_operations,
    )
