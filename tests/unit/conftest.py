"""A port that refuses connections for as long as a test runs."""

import socket

import pytest


@pytest.fixture
def closed_port():
    """`closed_port()` is a port of 127.0.0.1 that nobody listens on, and that nobody else can get meanwhile."""
    held = []

    def hold():
        held.append(socket.socket())
        held[-1].bind(("127.0.0.1", 0))  # bound without listening: connections are refused
        return held[-1].getsockname()[1]

    yield hold
    for sock in held:
        sock.close()
