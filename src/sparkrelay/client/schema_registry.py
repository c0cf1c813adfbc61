"""A client of Confluent's schema registry and compatible ones (Karapace, Apicurio, Redpanda).

It uses the standard library's HTTP for a few small requests at the start of an instance. It belongs to the driver,
which does not pass its credentials on. Redirects are not followed, because they would take the credentials along.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sparkrelay.errors import SchemaRegistryException
from sparkrelay.printable import printable
from sparkrelay.records.schema_references import whole_schema
from sparkrelay.settings import INT32_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence
    from http.client import HTTPMessage

    from sparkrelay.config import StreamsConfig

_LONGEST_ANSWER: Final = 8 << 20
_CONTENT: Final = "application/vnd.schemaregistry.v1+json"
_NOT_FOUND: Final = 404
#: Refusals that concern timing, not the request.
_PASSING: Final = frozenset({408, 429})
#: Bound on a request, in seconds, because the start of an instance waits for it.
_LONGEST_SECONDS: Final = 15.0
_PIECE: Final = 1 << 16
#: Bound on the references of a schema, including indirect ones.
_MOST_REFERRED: Final = 100


class UnusableSchemaException(SchemaRegistryException):
    """The registry has the schema, but its references are missing or contradictory."""


class Reference(NamedTuple):
    """A reference of a schema: its name in the schema, and the subject and version it stands for."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of the registry.

    Attributes:
        id: its number, which records carry.
        text: its definition; a serialized file in base64 for ``PROTOBUF``.
        kind: ``AVRO``, ``JSON`` or ``PROTOBUF``.
        referred: names and texts of its direct and indirect references, dependencies first.
    """

    id: int
    text: str
    kind: str
    referred: tuple[tuple[str, str], ...] = ()

    @property
    def whole(self) -> str:
        """The schema with all its references; for ``PROTOBUF`` a serialized set of files in base64.

        Raises:
            SerializationException: one of them cannot be parsed.
        """
        if not self.referred and self.kind != "PROTOBUF":
            return self.text
        return whole_schema(self.kind, self.text, dict(self.referred))


class SchemaRegistry:
    """Requests to one registry, at the first of its addresses that answers."""

    def __init__(self, config: StreamsConfig) -> None:
        self._urls = [url.strip().rstrip("/") for url in config.schema_registry_url.split(",")]
        self._timeout = min(config.request_timeout_ms / 1000, _LONGEST_SECONDS)
        self._headers = {"Accept": f"{_CONTENT}, application/json", "Content-Type": _CONTENT}
        if config.basic_auth_user_info:
            user = base64.b64encode(config.basic_auth_user_info.encode()).decode("ascii")
            self._headers["Authorization"] = f"Basic {user}"
        try:
            context = ssl.create_default_context(cafile=config.schema_registry_ssl_ca_location or None)
        except (OSError, ssl.SSLError) as error:
            raise SchemaRegistryException(
                f"schema.registry.ssl.ca.location={config.schema_registry_ssl_ca_location!r} cannot be read: {error}"
            ) from error
        #: Answers by subject and version, which never change and are shared by many schemas.
        self._referred: dict[tuple[str, int], dict[str, Any]] = {}
        self._opener = urllib.request.build_opener(_NoRedirects(), urllib.request.HTTPSHandler(context=context))

    def __repr__(self) -> str:
        return f"<SchemaRegistry at {', '.join(self._urls)}>"

    def latest(self, subject: str) -> RegisteredSchema | None:
        """Return the newest schema of a subject, None if the subject does not exist."""
        return self.version(subject, "latest")

    def version(self, subject: str, version: int | str, kind: str = "AVRO") -> RegisteredSchema | None:
        """Return a version's schema, None if it does not exist."""
        form = "?format=serialized" if kind == "PROTOBUF" else ""
        answer = self._ask(f"/subjects/{_quoted(subject)}/versions/{version}{form}")
        return None if answer is None else self._schema(answer, None, f"{subject} version {version}")

    def versions(self, subject: str) -> list[RegisteredSchema]:
        """Return every version's schema."""
        numbers = self._ask(f"/subjects/{_quoted(subject)}/versions") or []
        if not isinstance(numbers, list) or not all(isinstance(number, int) for number in numbers):
            raise SchemaRegistryException(f"the schema registry does not list the versions of {subject!r}: {numbers!r}")
        found = (self.version(subject, number) for number in numbers)
        return [schema for schema in found if schema is not None]

    def by_id(self, id_: int) -> RegisteredSchema | None:
        """Return the schema with a number, None if it does not exist."""
        if id_ > INT32_MAX:
            return None  # any four bytes can precede a record, and some registries reject larger numbers as malformed
        answer = self._ask(f"/schemas/ids/{id_}")
        return None if answer is None else self._schema(answer, id_, f"number {id_}")

    def lookup(self, subject: str, text: str, kind: str, references: Sequence[Reference] = ()) -> int | None:
        """Return the number of a schema under a subject, None if it is not registered there."""
        return _number(self._ask(f"/subjects/{_quoted(subject)}", _body(text, kind, references)), subject)

    def version_of(self, subject: str, text: str, kind: str, references: Sequence[Reference] = ()) -> int | None:
        """Return the version of a schema under a subject, None if it is not registered there."""
        return _number(self._ask(f"/subjects/{_quoted(subject)}", _body(text, kind, references)), subject, "version")

    def register(self, subject: str, text: str, kind: str, references: Sequence[Reference] = ()) -> int:
        """Register a schema under a subject; return its number."""
        answer = self._ask(f"/subjects/{_quoted(subject)}/versions", _body(text, kind, references))
        number = _number(answer, subject)
        if number is None:
            raise SchemaRegistryException(f"the schema registry cannot register a schema for {subject!r}: not found")
        return number

    def _schema(self, answer: Any, id_: int | None, what: str) -> RegisteredSchema:
        answer = answer if isinstance(answer, dict) else {}
        text, kind = answer.get("schema"), str(answer.get("schemaType") or "AVRO")
        id_ = answer.get("id") if id_ is None else id_
        if not isinstance(text, str) or not isinstance(id_, int):
            raise SchemaRegistryException(f"the schema registry's answer has no schema: {what}")
        found: dict[str, tuple[tuple[str, int], str]] = {}
        self._refer(answer, kind, found, [what])
        return RegisteredSchema(id_, text, kind, tuple((name, its) for name, (_, its) in found.items()))

    def _refer(
        self, body: dict[str, Any], kind: str, found: dict[str, tuple[tuple[str, int], str]], path: list[str]
    ) -> None:
        """Add the references of a schema to ``found``, dependencies first.

        Raises:
            UnusableSchemaException: one is missing, circular, or used in two versions.
        """
        for one in body.get("references") or ():
            place, name = _reference(one, path[0])
            if name in found:
                if found[name][0] != place:
                    raise UnusableSchemaException(
                        f"the schema {path[0]} refers to {printable(name)!r} as version {found[name][0][1]} of "
                        f"{printable(found[name][0][0])!r} and as version {place[1]} of {printable(place[0])!r}; "
                        "register it with one of them"
                    )
                continue
            if name in path or len(found) + len(path) > _MOST_REFERRED:
                raise UnusableSchemaException(
                    f"the schema {path[0]} refers to itself, or to more than {_MOST_REFERRED} others, by "
                    f"{printable(name)!r}"
                )
            if place not in self._referred:
                form = "?format=serialized" if kind == "PROTOBUF" else ""
                answer = self._ask(f"/subjects/{_quoted(place[0])}/versions/{place[1]}{form}")
                if not isinstance(answer, dict) or not isinstance(answer.get("schema"), str):
                    raise UnusableSchemaException(
                        f"the schema {path[0]} refers to version {place[1]} of {printable(place[0])!r}, which the "
                        "schema registry does not have"
                    )
                self._referred[place] = answer
            its = self._referred[place]
            self._refer(its, kind, found, [*path, name])
            found[name] = place, its["schema"]

    def _ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """Return the answer to a request, None for "not found".

        Raises:
            SchemaRegistryException: no address answers, or the answer is an error.
        """
        reasons = []
        for url in self._urls:
            try:
                return self._asked(url + path, body)
            except urllib.error.HTTPError as error:
                text = _beginning(error)
                if error.code == _NOT_FOUND:
                    return None
                reason = f"{url}{path}: {error.code} {text or error.reason}"
                if error.code < 500 and error.code not in _PASSING:
                    raise SchemaRegistryException(f"the schema registry refuses {reason}") from None
                reasons.append(reason)
            except http.client.HTTPException as error:
                reasons.append(f"{url}{path}: the answer is not HTTP: {printable(repr(error))}")
            except RecursionError:
                reasons.append(f"{url}{path}: the answer is nested too deeply")
            except (OSError, ValueError) as error:
                reasons.append(f"{url}{path}: {printable(str(error))}")
        raise SchemaRegistryException(f"the schema registry does not answer: {'; '.join(reasons)}", retriable=True)

    def _asked(self, url: str, body: dict[str, Any] | None) -> Any:
        deadline = time.monotonic() + self._timeout
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, self._headers)  # noqa: S310 - the setting allows http and https
        answer = bytearray()
        with self._opener.open(request, timeout=self._timeout) as response:
            while piece := response.read1(_PIECE):
                answer += piece
                if len(answer) > _LONGEST_ANSWER or time.monotonic() > deadline:
                    raise OSError(f"the answer is not complete after {len(answer)} bytes and {self._timeout:g} s")
        return json.loads(answer)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(  # noqa: PLR0917 - as the library calls it
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        del req, fp, code, msg, headers, newurl


def _beginning(error: urllib.error.HTTPError) -> str:
    """Return the beginning of an error's text, empty if it cannot be read."""
    try:
        return printable(error.read(500).decode("utf-8", "replace"))
    except (OSError, ValueError, http.client.HTTPException):
        return ""


def _quoted(subject: str) -> str:
    return urllib.parse.quote(subject, safe="")


def _body(text: str, kind: str, references: Sequence[Reference]) -> dict[str, Any]:
    # Older registries know neither other kinds nor these fields.
    body: dict[str, Any] = {"schema": text} if kind == "AVRO" else {"schema": text, "schemaType": kind}
    return body | {"references": [one._asdict() for one in references]} if references else body


def _number(answer: Any, subject: str, which: str = "id") -> int | None:
    if answer is None:
        return None
    if not isinstance(answer, dict) or not isinstance(answer.get(which), int):
        raise SchemaRegistryException(f"the schema registry's answer about {subject!r} lacks the schema's {which}")
    return int(answer[which])


def _reference(one: Any, what: str) -> tuple[tuple[str, int], str]:
    """Return the subject and version of a reference, and its name."""
    name, subject, version = (one.get(key) if isinstance(one, dict) else None for key in ("name", "subject", "version"))
    if not isinstance(name, str) or not isinstance(subject, str) or not isinstance(version, int):
        raise UnusableSchemaException(f"the schema registry's answer has an incomplete reference: {what}")
    return (subject, version), name
