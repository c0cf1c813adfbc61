"""A peer that says what a test wants, on a socket of its own."""

import contextlib
import socket
import threading

from tests.waiting import LONG


@contextlib.contextmanager
def speaker(*parts, again=None):
    """A peer that says that, and then, again and again, something more."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        end = threading.Event()

        def run():
            with contextlib.suppress(OSError):
                client, _ = server.accept()
                with client:
                    # Else closing would reset the connection, and take back what was sent.
                    client.recv(65_536)
                    for part in parts:
                        client.sendall(part)
                    while again is not None and not end.is_set():
                        client.sendall(again[0])
                        end.wait(again[1])

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            end.set()
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            thread.join(LONG)
