"""Requests to an instance for JSON, with bounds on time and size."""

from __future__ import annotations

import json
from typing import Any, Final

from sparkrelay.observe.http_client import HttpConnection
from sparkrelay.observe.instance_view import read_view
from sparkrelay.settings import host_and_port

_LONGEST_ANSWER: Final = 4 << 20
_OK: Final = 200
_HEADERS: Final = {"Accept": "application/json", "Accept-Encoding": "identity"}


def ask_instance(address: str, timeout_s: float) -> dict[str, Any]:
    """Return the own view of the instance at ``host:port``.

    Raises:
        ValueError: the address is invalid, or not an instance's.
        OSError: no answer in time.
    """
    host, port = host_and_port(address)
    return read_view(fetch_json(HttpConnection(host.strip("[]"), port, timeout_s), "/api/instance", _LONGEST_ANSWER))


def fetch_json(connection: HttpConnection, path: str, longest: int) -> Any:
    """Return the JSON answer to a request and close the connection; at most about ``longest`` bytes are read.

    Raises:
        ValueError: the answer is too long or not JSON.
        OSError: no answer in time.
    """
    try:
        answer = connection.get(path, _HEADERS, longest=longest)
        if answer.status != _OK:
            raise ValueError(f"it answers {answer.status}: it is not an instance with a page")
        if len(answer.body) > longest:
            raise ValueError(f"it answers with more than {longest >> 20} MiB")
        return json.loads(answer.body, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("its answer is nested too deeply") from error
    finally:
        connection.close()


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")
