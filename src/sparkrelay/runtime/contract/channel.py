"""The channel between the driver and the steps of a resident job: commands one way, reports the other.

A stream socket: a Unix socket on the driver's own host, TCP from executors. Nothing is exchanged before both ends have
shown that they hold the key of the process: HMAC-SHA256 over two nonces, with another text in each direction, so that
no answer can be replayed. The key travels only in the pickled plan, as for ``failure_marks``. Then come frames: four
bytes of length, then the data. A length above the limit ends the channel before memory is allocated for it.

Refused: ``multiprocessing.connection``, whose handshake waits without a limit.
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

#: Path of a Unix socket, or host and port.
Address = str | tuple[str, int]

#: Name of a listener's Unix socket in its folder.
_SOCKET: Final = "steps"
_LENGTH: Final = struct.Struct(">I")
#: Commands and reports name each task's partitions once or twice; a thousand tasks need less than a megabyte.
_LONGEST_FRAME: Final = 64 << 20
_NONCE_BYTES: Final = 32
_DIGEST_BYTES: Final = hashlib.sha256().digest_size
#: Both ends run already and answer at once, or are not ours.
_HANDSHAKE_SECONDS: Final = 5.0
#: A vanished host is noticed within a minute.
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}


class ChannelClosed(StreamsException):
    """The peer closed the channel, or failed to authenticate."""


class Channel:
    """One end. One thread may send while another receives, but no two may send, or receive, at once."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    def fileno(self) -> int:
        """Return the socket's descriptor, for selectors."""
        return self._socket.fileno()

    def send(self, data: bytes) -> None:
        """Send one frame. Raises ChannelClosed if the peer closed the channel."""
        with _closed_by_peer():
            self._socket.sendall(_LENGTH.pack(len(data)) + data)

    def receive(self) -> bytes | None:
        """Wait for one frame; None if the peer closed the channel. Raises ChannelClosed within a frame."""
        head = self._exactly(_LENGTH.size)
        if not head:
            return None
        (length,) = _LENGTH.unpack(head)
        if length > _LONGEST_FRAME:
            raise ChannelClosed(f"a frame of {length} bytes was announced; the limit is {_LONGEST_FRAME}")
        return self._exactly(length, may_end=False)

    def bound(self, seconds: float | None) -> None:
        """Limit how long sending and receiving wait for the peer; None: no limit."""
        self._socket.settimeout(seconds)

    def close(self) -> None:
        """Close this end; the peer reads the end of the channel."""
        self._socket.close()

    def prove(self, key: bytes, *, ours: bytes, theirs: bytes) -> None:
        """Authenticate both ends to each other by the key. Raises ChannelClosed if the peer does not hold it."""
        self.bound(_HANDSHAKE_SECONDS)
        nonce = secrets.token_bytes(_NONCE_BYTES)
        with _closed_by_peer():
            self._socket.sendall(nonce)
        other = self._exactly(_NONCE_BYTES, may_end=False)
        with _closed_by_peer():
            self._socket.sendall(_digest(key, ours, other, nonce))
        answer = self._exactly(_DIGEST_BYTES, may_end=False)
        if not hmac.compare_digest(answer, _digest(key, theirs, nonce, other)):
            raise ChannelClosed("the peer does not hold the key of this process")
        self.bound(None)

    def _exactly(self, count: int, *, may_end: bool = True) -> bytes:
        """Read that many bytes; none if the channel ends before the first and ``may_end``."""
        parts = bytearray()
        while len(parts) < count:
            with _closed_by_peer():
                # A length is only trusted as far as data arrives.
                part = self._socket.recv(min(count - len(parts), 1 << 20))
            if not part:
                if may_end and not parts:
                    break
                raise ChannelClosed(f"a channel ended {count - len(parts)} bytes before the end of a frame")
            parts += part
        return bytes(parts)


class Listener:
    """Where the driver awaits the steps of one job. Closed once they are connected."""

    def __init__(self, key: bytes, host: tuple[str, str] | None) -> None:
        """Listen; ``host`` is the driver's address for executors and the address to listen on; None: a Unix socket.

        Raises StreamsException if no socket can be opened.
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
        """Return the next step's channel; None on timeout. Raises ChannelClosed if it does not hold the key."""
        self._socket.settimeout(max(seconds, 0.001))
        try:
            connection, _ = self._socket.accept()
        except TimeoutError:
            return None
        return _authenticated(connection, self._key, ours=b"driver", theirs=b"step")

    def close(self) -> None:
        """Stop listening; channels stay open."""
        if hasattr(self, "_socket"):
            self._socket.close()
        if self._folder is not None:
            self._folder.close()


def connect(address: Address, key: bytes) -> Channel:
    """Connect a step to its driver. Raises ChannelClosed if nobody listens there, or not the driver."""
    try:
        if isinstance(address, str):
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(_HANDSHAKE_SECONDS)
            connection.connect(address)
        else:
            connection = socket.create_connection(address, timeout=_HANDSHAKE_SECONDS)
    except OSError as error:
        raise ChannelClosed(f"the driver cannot be reached at {address}: {error}") from error
    return _authenticated(connection, key, ours=b"step", theirs=b"driver")


def _authenticated(connection: socket.socket, key: bytes, *, ours: bytes, theirs: bytes) -> Channel:
    channel = Channel(connection)
    if connection.family != socket.AF_UNIX:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE.items():
            if hasattr(socket, name):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    try:
        channel.prove(key, ours=ours, theirs=theirs)
    except BaseException:
        channel.close()
        raise
    return channel


@contextlib.contextmanager
def _closed_by_peer() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ChannelClosed(f"connection closed by peer: {error}") from error


def _family(host: str) -> socket.AddressFamily:
    return socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][0]


def _digest(key: bytes, who: bytes, theirs: bytes, ours: bytes) -> bytes:
    return hmac.digest(key, b"sparkrelay-channel:" + who + theirs + ours, "sha256")
