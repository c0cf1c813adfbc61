"""Declaring settings, reading them from dotted keys, and checking them: one mechanism for instances and clients.

A class of settings is a frozen dataclass whose fields are made with ``setting``: default, meaning, bounds. ``read``
converts a mapping of dotted keys to its values. Users paste settings of the Java client and of librdkafka, so a class
may have a table of *foreign* settings: keys of those clients that we do not have. A foreign setting either has no
effect here, and is accepted with a note in the log, or is refused with a reason and a remedy. Any other key is a typing
mistake, and the error names the nearest known key.

Refused: pydantic (these values are made in each Spark worker; importing it would cost them 0.1 s), and ignoring unknown
keys (a misspelt ``isolation.level`` would silently show aborted records).
"""

from __future__ import annotations

import dataclasses
import difflib
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.errors import ConfigException

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_log = logging.getLogger(__name__)

#: Default of ``max.decompressed.batch.bytes``. By default a broker accepts a megabyte of compressed records, and
#: repetitive JSON compresses to a fortieth: this is three times the size of such a batch.
DECOMPRESSED_BATCH_BYTES: Final = 128 << 20
#: Bounds of Kafka's INT and LONG.
INT32_MAX: Final = (1 << 31) - 1
INT64_MAX: Final = (1 << 63) - 1
#: Kafka's STRING has a length of 16 bits.
_STRING_MAX: Final = (1 << 15) - 1
#: Longer values are truncated in messages.
_SHOWN_MAX: Final = 200
_META: Final = "sparkrelay.setting"
_USER_IN_URL: Final = re.compile("://[^/]*@")
_SECRETS: Final = (
    "password",
    "passwd",
    "secret",
    "passphrase",
    "jaas",
    "user.info",
    "token",
    "key.pem",
    "keystore.key",
    "oauthbearer.config",
    # The repr of a function may show its bound arguments.
    "oauth.cb",
)
_PRIVATE_KEY: Final = "PRIVATE KEY-----"
_KINDS: Final[Mapping[Any, str]] = {
    str: "string",
    bool: "boolean",
    int: "whole number",
    tuple: "list of names",
    Callable: "function",
}


class MaskedSettings(dict[str, Any]):
    """Settings by dotted key; their repr hides secrets."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{{{', '.join(shown(key, value) for key, value in self.items())}}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting.

    Attributes:
        key: its dotted key.
        kind: ``int``, ``bool``, ``str``, ``tuple`` of strings, ``Callable`` for a function, ``object`` for anything.
        default: its value if not set; ``dataclasses.MISSING`` if it is required.
        meaning: one line for users, with the unit.
        least: smallest number.
        most: largest number.
        choices: allowed words; empty for any.
        aliases: other spellings of the key.
        check: raises ValueError for a value that is not valid; not called for the default.
    """

    key: str
    kind: Any
    default: Any
    meaning: str
    least: int = 0
    most: int = INT32_MAX
    choices: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    check: Callable[[Any], object] | None = None


@dataclass(frozen=True, slots=True)
class Foreign:
    """A setting of other clients that we do not have.

    Attributes:
        note: why, and what to do instead.
        accepted: values without effect here, in lower case; None for any value, empty for none.
    """

    note: str
    accepted: tuple[str, ...] | None = ()


def setting(default: Any, meaning: str, *, key: str = "", secret: bool = False, **bounds: Any) -> Any:
    """Declare a field. ``dataclasses.MISSING`` as default makes it required.

    Args:
        default: its value if not set.
        meaning: one line for users, with the unit.
        key: its key, if that is not the field's name with dots for underscores.
        secret: whether the value must not be shown.
        bounds: ``least``, ``most``, ``choices``, ``aliases`` and ``check`` of :class:`Setting`.
    """
    return dataclasses.field(
        default=default, repr=not secret, metadata={_META: {"key": key, "meaning": meaning, **bounds}}
    )


def setting_of(cls: type, name: str, **other: int) -> Any:
    """Declare a field that is a setting of another class, with its key, default and bounds unless ``other`` differs."""
    source = next(item for item in dataclasses.fields(cls) if item.name == name)
    declared = {**source.metadata[_META], "key": settings_of(cls)[name].key, **other}
    return dataclasses.field(default=source.default, repr=source.repr, metadata={_META: declared})


def settings_of(cls: type) -> Mapping[str, Setting]:
    """Return the settings of a class by field name, in order."""
    found = {}
    for item in dataclasses.fields(cls):
        if _META in item.metadata:
            declared = dict(item.metadata[_META])
            key = declared.pop("key") or dotted(item.name)
            found[item.name] = Setting(key=key, kind=_kind(item.type), default=item.default, **declared)
    return MappingProxyType(found)


def _kind(annotation: Any) -> Any:
    # Under PEP 563 annotations are strings.
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    word = text.partition("|")[0].partition("[")[0].strip()
    return {"int": int, "bool": bool, "str": str, "tuple": tuple, "Any": object}.get(word, Callable)


def dotted(name: str) -> str:
    """Return the key of a field."""
    return name.replace("_", ".")


def is_secret(key: str, value: object) -> bool:
    """Return whether a setting is a secret, by its value or its key, which may be misspelt."""
    words = key.lower().replace("_", ".").replace("-", ".")
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - as in shortly()
        text = shortly(value)
    return (
        _PRIVATE_KEY in text
        or _USER_IN_URL.search(text) is not None
        or words.endswith("ssl.key")
        or any(
            secret in words or difflib.get_close_matches(secret, words.split("."), cutoff=0.75) for secret in _SECRETS
        )
    )


def shown(key: str, value: object) -> str:
    """Return ``key=value`` for a message, without secrets."""
    if is_secret(key, value):
        return f"{key}=(hidden)"
    try:
        return f"{key}={value!r}"
    except Exception:  # noqa: BLE001 - as in shortly()
        return f"{key}={shortly(value)}"


def nearest(key: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` for the known key nearest to ``key``, or an empty string."""
    match = difflib.get_close_matches(key.replace("_", "."), list(known), n=1, cutoff=0.6)
    return f"; did you mean {match[0]!r}?" if match else ""


def read(
    cls: type, config: Mapping[str, object], *, what: str, foreign: Mapping[str, Foreign], also: Iterable[str] = ()
) -> tuple[dict[str, Any], dict[str, object]]:
    """Read dotted keys. None stands for the default.

    Args:
        cls: the class of settings.
        config: the user's settings.
        what: their owner, for messages.
        foreign: settings of other clients, by key.
        also: keys to return unchanged.

    Returns:
        Values by field name, and the settings named in ``also``.

    Raises:
        ConfigException: a key is unknown, refused or missing, or a value malformed.
    """
    known = settings_of(cls)
    names = {key: name for name, item in known.items() for key in (item.key, *item.aliases)}
    others = frozenset(also)
    values: dict[str, Any] = {}
    given: dict[str, str] = {}
    rest: dict[str, object] = {}
    for key, value in config.items():
        if not isinstance(key, str):
            raise ConfigException(f"setting names are strings such as 'bootstrap.servers', not {key!r}")
        if key in names:
            if value is None:
                continue
            name = names[key]
            converted = _converted(known[name], key, value)
            if name in values and values[name] != converted:
                raise ConfigException(f"{given[name]} and {key} are one setting with two values; leave one of them out")
            values[name], given[name] = converted, key
        elif key in others:
            rest[key] = value
        elif key in foreign:
            accepted = foreign[key].accepted
            if not (accepted is None or (accepted and value is None) or str(value).strip().lower() in accepted):
                raise ConfigException(f"{shown(key, value)} is not a setting of {what}: {foreign[key].note}")
            _log.info("%s has no effect: %s", shown(key, value), foreign[key].note)
        else:
            remedy = nearest(key, [*names, *others]) or "; leave it out: docs/settings.md lists all settings"
            raise ConfigException(f"unknown setting {shown(key, value)} of {what}{remedy}")
    for name, item in known.items():
        if item.default is dataclasses.MISSING and name not in values:
            raise ConfigException(f"{item.key} is required: {item.meaning}")
    return values, rest


def check(values: object) -> None:
    """Raise ConfigException if a value is out of range, not one of the choices, or refused by its own check."""
    kind: type = type(values)
    for name, declared in settings_of(kind).items():
        value = getattr(values, name)
        if declared.kind is int and value is not None and not declared.least <= value <= declared.most:
            raise ConfigException(
                f"{declared.key}={shortly(value)} is out of range; give {declared.least} to {declared.most}"
            )
        if declared.choices and value is not None and value not in declared.choices:
            raise ConfigException(
                f"{declared.key}={value!r} must be one of {', '.join(filter(None, declared.choices))}"
            )
        if declared.check is not None and value != declared.default:
            try:
                declared.check(value)
            except ValueError as error:
                raise ConfigException(f"{shown(declared.key, value)}: {error}") from None


def check_sent(key: str, value: str | None) -> None:
    """Raise ConfigException if a text cannot be sent to brokers."""
    if value is not None and (problem := string_problem(value)) is not None:
        raise ConfigException(f"{key}={shortly(value)}: {problem}")


def host_and_port(text: str) -> tuple[str, int]:
    """Parse ``HOST:PORT``; an IPv6 host keeps its brackets. Raises ValueError for anything else."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} is not HOST:PORT, such as localhost:9092")
    return host, int(port)


def string_problem(text: str) -> str | None:
    """Return why a text cannot be sent to a broker; None if it can."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return "it has characters that UTF-8 cannot encode"
    if size > _STRING_MAX:
        return f"it takes {size} bytes of UTF-8, and Kafka's strings take at most {_STRING_MAX}"
    return None


def shortly(value: object) -> str:
    """Return ``repr(value)`` for a message, truncated if it is long."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - Python does not format integers of thousands of digits
        return f"an {type(value).__name__} that cannot be shown"
    return text if len(text) <= _SHOWN_MAX else f"{text[: _SHOWN_MAX // 2]}... ({len(text)} characters)"


def _converted(declared: Setting, key: str, value: object) -> object:
    kind = declared.kind
    if kind is str:
        if isinstance(value, str):
            # A password may begin or end with a space.
            text = value if declared.key.endswith(("password", "secret")) else value.strip()
            return next((word for word in declared.choices if word.lower() == text.lower()), text)
        if isinstance(value, list | tuple):
            return ",".join(str(item) for item in value)
    elif kind is bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.strip().lower() in {"true", "false"}:
            return value.strip().lower() == "true"
    elif kind is int:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, float) and value.is_integer():
            return int(value)
        if isinstance(value, str):
            try:
                return int(value.strip())
            except ValueError:
                pass
    elif kind is tuple:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        if isinstance(value, list | tuple) and all(isinstance(part, str) for part in value):
            return tuple(value)
    elif kind is object or callable(value):
        return value
    raise ConfigException(f"{shown(key, value)} is not a valid {_KINDS[kind]}")
