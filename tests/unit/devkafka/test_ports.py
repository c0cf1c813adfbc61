"""Ports that are held for a server: nobody else is given them, and the server can listen on them."""

import gc
import socket
import subprocess
import sys

import pytest

from sparkrelay.devkafka import ports
from sparkrelay.devkafka.ports import HeldPort, is_free
from sparkrelay.errors import DevKafkaException

linux = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a bound port cannot be listened on")

LISTEN = """
import socket, sys
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as server:
    print("listening")
"""


def test_a_held_port_is_one_that_no_outgoing_connection_takes():
    with HeldPort() as port:
        assert 20_000 <= port.number < 32_768


def test_a_port_is_free_until_somebody_listens():
    with socket.socket() as holder:
        # With this option the port can be bound again until it is listened on, but nobody else is given it.
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        port = holder.getsockname()[1]
        assert is_free(port)
        holder.listen()
        assert not is_free(port)


@linux
def test_a_held_port_is_not_chosen_again_and_servers_of_other_processes_can_have_it(monkeypatch):
    with HeldPort() as port:
        monkeypatch.setattr(ports, "_FIRST", port.number)
        monkeypatch.setattr(ports, "_LAST", port.number)
        with pytest.raises(DevKafkaException, match=f"No free port found between {port.number} and {port.number}"):
            HeldPort()
        # One after the other, as a broker that is started again.
        for _ in range(2):
            server = [sys.executable, "-c", LISTEN, str(port.number)]
            assert subprocess.run(server, capture_output=True, text=True, check=True).stdout == "listening\n"
    with HeldPort() as again:
        assert again.number == port.number


@linux
def test_a_port_that_is_listened_on_or_named_is_not_chosen(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        monkeypatch.setattr(ports, "_FIRST", taken)
        monkeypatch.setattr(ports, "_LAST", taken)
        with pytest.raises(DevKafkaException, match="No free port"):
            HeldPort()
    with pytest.raises(DevKafkaException, match="No free port"):
        HeldPort(but_not=taken)


def test_a_port_that_is_forgotten_is_released(monkeypatch):
    held = HeldPort()
    monkeypatch.setattr(ports, "_FIRST", held.number)
    monkeypatch.setattr(ports, "_LAST", held.number)
    number = held.number
    del held
    gc.collect()
    with HeldPort() as again:
        assert again.number == number
