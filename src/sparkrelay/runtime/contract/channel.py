"""The channel between the driver and the steps of a job that stays: commands one way, reports the other.

A stream socket, a Unix one on the driver's own host and TCP from executors. Nothing is said on it before both ends have
shown that they hold the key of the process (HMAC-SHA256 over two nonces, another text in each direction, so that no
answer can be played back). The key travels in the pickled plan alone, as for ``failure_marks``. What follows are
frames: four bytes of length, then so many bytes; a length that is beyond the bound ends the channel before anything is
allocated for it.

Refused: ``multiprocessing.connection``, whose handshake waits without a bound.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import secrets
import socket
import struct
from typing import TYPE_CHECKING, Final

from sparkrelay.errors import StreamsException
from sparkrelay.runtime.contract.socket_folders import SocketFolder, temporary_folders

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Address", "Channel", "ChannelClosed", "Listener", "connect"]

#: Path of a Unix socket, or host and port.
Address = str | tuple[str, int]

#: Name of a listener's Unix socket in its folder.
_SOCKET: Final = "steps"
_LENGTH: Final = struct.Struct(">I")
#: Commands and reports name each task's partitions once or twice; a thousand tasks need less than a megabyte.
_LONGEST_FRAME: Final = 64 << 20
_NONCE_BYTES: Final = 32
_DIGEST_BYTES: Final = hashlib.sha256().digest_size
#: Both ends are there and answer at once, or are not ours.
_HANDSHAKE_SECONDS: Final = 5.0
#: Another host that has vanished is noticed within a minute.
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}


class ChannelClosed(StreamsException):
    """The other end of a channel is gone, or is not ours."""


class Channel:
    """One end. A thread of its own may not send while another does, nor receive while another does."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    def fileno(self) -> int:
        """Return the socket's descriptor, for selectors."""
        return self._socket.fileno()

    def send(self, data: bytes) -> None:
        """Send one frame.

        Raises:
            ChannelClosed: the other end is gone.
        """
        try:
            self._socket.sendall(_LENGTH.pack(len(data)) + data)
        except OSError as error:
            raise ChannelClosed(f"the other end of a channel is gone: {error}") from error

    def receive(self) -> bytes | None:
        """Wait for one frame; None if the other end has closed the channel in between two.

        Raises:
            ChannelClosed: the channel ended within a frame, or the frame is longer than any is.
        """
        head = self._exactly(_LENGTH.size, may_end=True)
        if head is None:
            return None
        (length,) = _LENGTH.unpack(head)
        if length > _LONGEST_FRAME:
            raise ChannelClosed(f"a frame of {length} bytes was announced; none is longer than {_LONGEST_FRAME}")
        return self._exactly(length)

    def bound(self, seconds: float | None) -> None:
        """Let sending and receiving wait no longer than that for the other end; None: without a bound."""
        self._socket.settimeout(seconds)

    def close(self) -> None:
        """Close this end; the other one reads that."""
        self._socket.close()

    def prove(self, key: bytes, *, ours: bytes, theirs: bytes) -> None:
        """Show that this end holds the key, and have the other end show it.

        Raises:
            ChannelClosed: it does not.
        """
        self.bound(_HANDSHAKE_SECONDS)
        nonce = secrets.token_bytes(_NONCE_BYTES)
        with self._gone():
            self._socket.sendall(nonce)
        other = self._exactly(_NONCE_BYTES)
        assert other is not None
        with self._gone():
            self._socket.sendall(_digest(key, ours, other, nonce))
        answer = self._exactly(_DIGEST_BYTES)
        assert answer is not None
        if not hmac.compare_digest(answer, _digest(key, theirs, nonce, other)):
            raise ChannelClosed("somebody connected who does not hold the key of this process")
        self.bound(None)

    def _exactly(self, count: int, *, may_end: bool = False) -> bytes | None:
        parts = bytearray()
        while len(parts) < count:
            with self._gone():
                # Never more than has come: a length is believed only as far as bytes follow.
                part = self._socket.recv(min(count - len(parts), 1 << 20))
            if not part:
                if may_end and not parts:
                    return None
                raise ChannelClosed(f"a channel ended {count - len(parts)} bytes before the end of a frame")
            parts += part
        return bytes(parts)

    @contextlib.contextmanager
    def _gone(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ChannelClosed(f"the other end of a channel is gone: {error}") from error


class Listener:
    """Where the driver awaits the steps of one job. Closed as soon as they are there."""

    def __init__(self, key: bytes, host: tuple[str, str] | None) -> None:
        """Listen.

        Args:
            key: what both ends must hold.
            host: where executors reach the driver, and the address that it listens on; None: a Unix socket, for workers
                on its own host.

        Raises:
            StreamsException: it is not possible.
        """
        self._key = key
        self._folder: SocketFolder | None = None
        try:
            if host is None:
                self._folder = SocketFolder(temporary_folders(), len(_SOCKET))
                path = str(self._folder.path / _SOCKET)
                self._socket = socket.socket(socket.AF_UNIX)
                self._socket.bind(path)
                self.address: Address = path
            else:
                reached, bound = host
                self._socket = socket.create_server((bound, 0), family=_family(bound))
                self.address = (reached, int(self._socket.getsockname()[1]))
            self._socket.listen(64)
        except OSError as error:
            place = host[1] if host else self._folder and self._folder.path
            self.close()
            raise StreamsException(f"no socket for a resident Spark job can be opened on {place}: {error}") from error

    def accept(self, seconds: float) -> Channel | None:
        """Return the next end that holds the key; None if none comes within that time.

        Raises:
            ChannelClosed: who came does not hold it.
        """
        self._socket.settimeout(max(seconds, 0.001))
        try:
            connection, _ = self._socket.accept()
        except TimeoutError:
            return None
        channel = Channel(connection)
        _tune(connection)
        try:
            channel.prove(self._key, ours=b"driver", theirs=b"step")
        except BaseException:
            channel.close()
            raise
        return channel

    def close(self) -> None:
        """Accept nobody any more; channels stay open."""
        if hasattr(self, "_socket"):
            self._socket.close()
        if self._folder is not None:
            self._folder.close()


def connect(address: Address, key: bytes) -> Channel:
    """Connect a step to its driver.

    Raises:
        ChannelClosed: nobody listens there, or not the driver.
    """
    try:
        if isinstance(address, str):
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(_HANDSHAKE_SECONDS)
            connection.connect(address)
        else:
            connection = socket.create_connection(address, timeout=_HANDSHAKE_SECONDS)
    except OSError as error:
        raise ChannelClosed(f"the driver cannot be reached at {address}: {error}") from error
    channel = Channel(connection)
    _tune(connection)
    try:
        channel.prove(key, ours=b"step", theirs=b"driver")
    except BaseException:
        channel.close()
        raise
    return channel


def _family(host: str) -> socket.AddressFamily:
    return socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][0]


def _tune(connection: socket.socket) -> None:
    if connection.family == socket.AF_UNIX:
        return
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _digest(key: bytes, who: bytes, theirs: bytes, ours: bytes) -> bytes:
    return hmac.new(key, b"sparkrelay-channel:" + who + theirs + ours, hashlib.sha256).digest()
