"""Requests to an instance for JSON, with bounds on time and size."""

from __future__ import annotations

import http.client
import json
from typing import Any, Final

from sparkrelay.observe.instance_view import read_view
from sparkrelay.observe.time_limit import time_limit
from sparkrelay.settings import host_and_port

_LONGEST_ANSWER: Final = 4 << 20
_OK: Final = 200


def ask_instance(address: str, timeout_s: float) -> dict[str, Any]:
    """Return the own view of the instance at ``host:port``.

    Raises:
        ValueError: the address is invalid, or not an instance's.
        OSError: no answer in time.
    """
    host, port = host_and_port(address)
    connection = http.client.HTTPConnection(host.strip("[]"), port, timeout=timeout_s)
    return read_view(fetch_json(connection, "/api/instance", timeout_s, longest=_LONGEST_ANSWER))


def fetch_json(connection: http.client.HTTPConnection, path: str, timeout_s: float, *, longest: int) -> Any:
    """Return the JSON answer to a request and close the connection.

    ``timeout_s`` bounds all from connecting to the last byte, except the name lookup. At most about ``longest`` bytes
    are read.

    Raises:
        ValueError: the answer is too long or not JSON.
        OSError: no answer in time.
    """
    try:
        with time_limit(connection, timeout_s):
            connection.request("GET", path, headers={"Accept": "application/json"})
            response = connection.getresponse()
            data = response.read(longest + 1)
        if response.status != _OK:
            raise ValueError(f"it answers {response.status}: it is not an instance with a page")
        if len(data) > longest:
            raise ValueError(f"it answers with more than {longest >> 20} MiB")
        return json.loads(data, parse_constant=_refuse)
    except http.client.HTTPException as error:
        raise ValueError(f"it does not speak HTTP: {type(error).__name__}") from error
    except RecursionError as error:
        raise ValueError("its answer is nested too deeply") from error
    finally:
        connection.close()


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")
