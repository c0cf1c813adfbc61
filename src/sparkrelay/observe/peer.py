"""Asking an instance for JSON: within a time and a size, whatever answers there."""

from __future__ import annotations

import http.client
import json
from typing import Any, Final

from sparkrelay.observe.instance_view import read_view
from sparkrelay.observe.time_limit import time_limit
from sparkrelay.settings import host_and_port

__all__ = ["ask_instance", "fetch_json"]

_LONGEST_ANSWER: Final = 4 << 20
_OK: Final = 200


def ask_instance(address: str, timeout_s: float) -> dict[str, Any]:
    """Return what an instance says of itself.

    Args:
        address: ``host:port``.
        timeout_s: seconds, as :func:`fetch_json` has them.

    Raises:
        ValueError: that is no address, or something else than an instance answers there.
        OSError: nobody answers in time.
    """
    host, port = host_and_port(address)
    connection = http.client.HTTPConnection(host.strip("[]"), port, timeout=timeout_s)
    return read_view(fetch_json(connection, "/api/instance", timeout_s, longest=_LONGEST_ANSWER))


def fetch_json(connection: http.client.HTTPConnection, path: str, timeout_s: float, *, longest: int) -> Any:
    """Return what is answered to a question, and close the connection.

    It takes ``timeout_s`` at most, from connecting to the last byte, beside what the name service takes. No more than
    ``longest`` bytes are read.

    Raises:
        ValueError: something else than JSON is answered, or too much.
        OSError: nobody answers in time.
    """
    try:
        with time_limit(connection, timeout_s):
            connection.request("GET", path, headers={"Accept": "application/json"})
            response = connection.getresponse()
            data = response.read(longest + 1)
        if response.status != _OK:
            raise ValueError(f"it answers {response.status}: it is no instance with a page")
        if len(data) > longest:
            raise ValueError(f"it answers with more than {longest >> 20} MiB")
        return json.loads(data, parse_constant=_refuse)
    except http.client.HTTPException as error:
        raise ValueError(f"what answers there speaks no HTTP: {type(error).__name__}") from error
    except RecursionError as error:
        raise ValueError("its answer is nested too deeply") from error
    finally:
        connection.close()


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")
