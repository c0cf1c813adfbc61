"""Asking another instance over HTTP, with bounds: how long it may take, how much it may say."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

import pyarrow as pa

from sparkrelay.errors import InvalidStateStorePartitionException, StateStoreNotAvailableException

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.protocol import HostInfo

__all__ = ["ANSWER_HEADER", "ARROW", "FORWARDED_HEADER", "TRUNCATED_HEADER", "Peers", "RemoteRows"]

ARROW: Final = "application/vnd.apache.arrow.stream"
#: Says of each task that had a part in an answer where it stands, as JSON.
ANSWER_HEADER: Final = "SparkRelay-Tasks"
TRUNCATED_HEADER: Final = "SparkRelay-Truncated"
#: A request with it comes from an instance, and goes no further.
FORWARDED_HEADER: Final = "SparkRelay-Forwarded"
_LONGEST_ANSWER: Final = 256 << 20
_LONGEST_ERROR: Final = 4_096
_OK: Final = 200
_MISDIRECTED: Final = 421


@dataclass(frozen=True, slots=True)
class RemoteRows:
    """What another instance said.

    Attributes:
        rows: of the store.
        tasks: of each task that had a part in it where it stands.
        truncated: True if there were more rows than it may send.
    """

    rows: pa.RecordBatch
    tasks: list[dict[str, Any]]
    truncated: bool


class Peers:
    """The group's other instances. Any thread may ask."""

    def __init__(self, own: str, token: str, timeout_s: float) -> None:
        """Take what each request says.

        Args:
            own: this instance's ``application.server``.
            token: what shows that we may ask; empty if nobody needs it.
            timeout_s: how long connecting, and each part of the answer, may take.
        """
        self._timeout_s = timeout_s
        self._headers = {"Accept": ARROW, FORWARDED_HEADER: own or "an instance without application.server"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    def ask(
        self, host: HostInfo, store: str, key: str | None, parameters: Mapping[str, str], schema: pa.Schema
    ) -> RemoteRows:
        """Ask an instance.

        Args:
            host: which.
            store: the store.
            key: as the path has it; None for many rows.
            parameters: the rest of the question.
            schema: of the store's rows: an answer with others is refused.

        Raises:
            InvalidStateStorePartitionException: it does not have them.
            StateStoreNotAvailableException: it does not answer, or says that it cannot just now.
        """
        path = f"/stores/{quote(store, safe='')}" + ("" if key is None else f"/{quote(key, safe='')}")
        connection = http.client.HTTPConnection(host.host.strip("[]"), host.port, timeout=self._timeout_s)
        try:
            connection.request("GET", f"{path}?{urlencode(parameters)}", headers=self._headers)
            response = connection.getresponse()
            if response.status != _OK:
                raise self._refused(host, response.status, response.read(_LONGEST_ERROR))
            data = response.read(_LONGEST_ANSWER + 1)
            if len(data) > _LONGEST_ANSWER:
                raise StateStoreNotAvailableException(
                    f"{host} answers with more than {_LONGEST_ANSWER >> 20} MiB; ask for fewer rows"
                )
            tasks = json.loads(response.headers.get(ANSWER_HEADER, "[]"))
            return RemoteRows(_rows(data, schema), tasks, response.headers.get(TRUNCATED_HEADER) == "true")
        except (OSError, http.client.HTTPException, ValueError, pa.ArrowException) as error:
            raise StateStoreNotAvailableException(f"{host} does not answer: {error or type(error).__name__}") from error
        finally:
            connection.close()

    def _refused(self, host: HostInfo, status: int, body: bytes) -> Exception:
        text = body.decode("utf-8", "replace").strip()
        if status == _MISDIRECTED:
            return InvalidStateStorePartitionException(f"{host}: {text}")
        return StateStoreNotAvailableException(f"{host} says {status}: {text}")


def _rows(data: bytes, schema: pa.Schema) -> pa.RecordBatch:
    with pa.ipc.open_stream(pa.BufferReader(data)) as reader:
        if reader.schema != schema:
            raise ValueError("it has other columns: it runs another release of the pipeline")
        batches = [batch for batch in reader if batch.validate(full=True) is None]
    return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], schema)
