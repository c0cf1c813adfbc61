"""One JSON value at a time, by the complete rules: for records that the fast readers refuse."""

from __future__ import annotations

import base64
import binascii
import decimal
import json
import math
import re
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from sparkrelay.records.arrow_buffers import BinaryColumn
from sparkrelay.records.json.scan import MAX_DEPTH
from sparkrelay.records.times import parse_dates, parse_timestamps

if TYPE_CHECKING:
    from collections.abc import Callable

_SHOWN: Final = 80
_MARK: Final = re.compile(r'\\.|["\[\]{}]', re.DOTALL)
_FLOAT32_BOUND: Final = 3.4028235677973366e38  # from here on a number is rounded to an infinite float
_TEXT_FLOATS: Final = {
    "NaN": math.nan,
    "Infinity": math.inf,
    "+Infinity": math.inf,
    "INF": math.inf,
    "+INF": math.inf,
    "-Infinity": -math.inf,
    "-INF": -math.inf,
}


class Misfit(ValueError):  # noqa: N818 - it says what the value is, and never leaves this package
    """A value does not fit; the text has the place and the reason."""


def row_from_json(value: bytes | str, schema: pa.Schema) -> dict[str, Any]:
    """Read one object to the Python values that Arrow takes for this schema.

    Raises:
        Misfit: it is not one JSON object, or a field does not fit its type.
    """
    try:
        # json would guess the encoding, and take UTF-16.
        text = value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError as error:
        raise Misfit(f"not UTF-8 text: {error}") from error
    if not text.strip(" \t\r\n"):
        raise Misfit("empty value; a tombstone is null, not empty")
    if _is_too_deep(text):
        raise Misfit(f"nested deeper than {MAX_DEPTH} levels")
    try:
        parsed = json.loads(text, parse_float=_Number, parse_int=_Number)
    except ValueError as error:
        raise Misfit(f"not JSON: {error}: {_shown(text)}") from error
    if not isinstance(parsed, dict):
        raise Misfit(f"not a JSON object but {_kind_of(parsed)}: {_shown(text)}")
    return {field.name: _read(parsed.get(field.name), field.type, field.name) for field in schema}


def _is_too_deep(text: str) -> bool:
    """Return whether objects and arrays are nested deeper than ``MAX_DEPTH``: the readers recurse."""
    if text.count("{") + text.count("[") <= MAX_DEPTH:
        return False
    depth, in_string = 0, False
    for mark in _MARK.finditer(text):
        match mark[0]:
            case '"':
                in_string = not in_string
            case "{" | "[" if not in_string:
                depth += 1
                if depth > MAX_DEPTH:
                    return True
            case "}" | "]" if not in_string:
                depth -= 1
    return False


class _Number(str):
    """A number as it was written: exact for decimals, unchanged as text."""

    __slots__ = ()


def _read(value: Any, kind: pa.DataType, where: str) -> Any:
    if value is None:
        return None
    for test, read in _READERS:
        if test(kind):
            return read(value, kind, where)
    raise AssertionError(kind)


def _wrong(value: Any, kind: pa.DataType, where: str) -> Misfit:
    return Misfit(f"field {where} is {_kind_of(value)}, not {kind}: {_shown(_as_java(_compact(value)))}")


def _kind_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, (_Number, int, float)):
        return "a number"
    return "a string" if isinstance(value, str) else "an array" if isinstance(value, list) else "an object"


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and not isinstance(value, _Number)


def _boolean(value: Any, kind: pa.DataType, where: str) -> bool:
    if isinstance(value, bool):
        return value
    raise _wrong(value, kind, where)


def _integer(value: Any, kind: pa.DataType, where: str) -> int:
    if isinstance(value, _Number) and value.lstrip("-").isdecimal() and len(value) <= 20:
        number = int(value)
        if -(1 << (kind.bit_width - 1)) <= number < 1 << (kind.bit_width - 1):
            return number
        raise Misfit(f"field {where} does not fit into {kind}: {value}")
    raise _wrong(value, kind, where)


def _float(value: Any, kind: pa.DataType, where: str) -> float:
    if isinstance(value, _Number):
        number = float(value)
        if math.isinf(number) or (pa.types.is_float32(kind) and abs(number) >= _FLOAT32_BOUND):
            raise Misfit(f"field {where} does not fit into {kind}: {_shown(value)}")
        return number
    if isinstance(value, float):  # NaN, Infinity, -Infinity as bare words
        return value
    if _is_text(value) and value in _TEXT_FLOATS:
        return _TEXT_FLOATS[value]
    raise _wrong(value, kind, where)


def _string(value: Any, kind: pa.DataType, where: str) -> str:
    del kind, where
    return _as_java(str(value) if isinstance(value, str) else _compact(value))


def _as_java(text: str) -> str:
    """Replace unpaired surrogates by question marks, as Java does."""
    return text.encode("utf-8", "replace").decode()


def _compact(value: Any) -> str:
    """Write JSON without whitespace, numbers as they were. A loop: recursion takes too many calls a level."""
    parts: list[str] = []
    waiting = [value]  # the next one last; finished text is a _Number
    while waiting:
        one = waiting.pop()
        if isinstance(one, _Number):
            parts.append(one)
        elif isinstance(one, dict):
            waiting.append(_Number("}"))
            for index, (name, item) in reversed(list(enumerate(one.items()))):
                waiting += (item, _Number(f"{',' if index else ''}{json.dumps(name, ensure_ascii=False)}:"))
            parts.append("{")
        elif isinstance(one, list):
            waiting.append(_Number("]"))
            for index, item in reversed(list(enumerate(one))):
                waiting += (item, _Number("," if index else ""))
            parts.append("[")
        else:
            parts.append(json.dumps(one, ensure_ascii=False))
    return "".join(parts)


def _decimal(value: Any, kind: pa.DataType, where: str) -> decimal.Decimal:
    if isinstance(value, str):
        try:
            exact = decimal.Decimal(value)
            if not exact.is_finite() or "_" in value or value.strip() != value:
                raise decimal.InvalidOperation
            context = decimal.Context(prec=max(kind.precision, 1), rounding=decimal.ROUND_HALF_UP)
            return exact.quantize(decimal.Decimal(1).scaleb(-kind.scale), context=context)
        except decimal.InvalidOperation:
            raise Misfit(f"field {where} does not fit into {kind}: {_shown(value)}") from None
    raise _wrong(value, kind, where)


def _timestamp(value: Any, kind: pa.DataType, where: str) -> Any:
    if _is_text(value):
        micros, readable = parse_timestamps(_one(value), 1, zone_allowed=kind.tz is not None)
        if readable[0]:
            return _in_unit(int(micros[0]), kind)
        raise Misfit(f"field {where} is not an ISO-8601 timestamp: {_shown(value)}")
    micros_since = _integer(value, pa.int64(), where) * 1_000_000
    if abs(micros_since) >= 1 << 63:
        raise Misfit(f"field {where} does not fit into {kind}: {value} seconds since 1970")
    return _in_unit(micros_since, kind)


def _in_unit(micros: int, kind: pa.DataType) -> Any:
    return pa.scalar(micros, pa.int64()).cast(pa.timestamp("us", kind.tz)).cast(kind, safe=False)


def _date(value: Any, kind: pa.DataType, where: str) -> Any:
    if _is_text(value):
        days, readable = parse_dates(_one(value), 1)
        if readable[0]:
            return pa.scalar(int(days[0]), pa.int32()).cast(kind)
        raise Misfit(f"field {where} is not an ISO-8601 date: {_shown(value)}")
    return pa.scalar(_integer(value, pa.int32(), where), pa.int32()).cast(kind)


def _one(text: str) -> BinaryColumn:
    return BinaryColumn.of(pa.array([text.encode("utf-8", "replace")], pa.binary()))


def _binary(value: Any, kind: pa.DataType, where: str) -> bytes:
    if not _is_text(value):
        raise _wrong(value, kind, where)
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise Misfit(f"field {where} is not base64: {_shown(value)}") from None


def _struct(value: Any, kind: pa.DataType, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(value, kind, where)
    fields = [kind.field(index) for index in range(kind.num_fields)]
    return {field.name: _read(value.get(field.name), field.type, f"{where}.{field.name}") for field in fields}


def _list(value: Any, kind: pa.DataType, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise _wrong(value, kind, where)
    return [_read(item, kind.value_type, f"{where}[{index}]") for index, item in enumerate(value)]


def _map(value: Any, kind: pa.DataType, where: str) -> list[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise _wrong(value, kind, where)
    # The last of equal names counts, even if they are equal only after their surrogates are replaced.
    return list(
        {_as_java(name): _read(item, kind.item_type, f"{where}.{name}") for name, item in value.items()}.items()
    )


def _null(value: Any, kind: pa.DataType, where: str) -> None:
    raise _wrong(value, kind, where)


_READERS: Final[tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any, pa.DataType, str], Any]], ...]] = (
    (pa.types.is_string, _string),
    (pa.types.is_signed_integer, _integer),
    (pa.types.is_floating, _float),
    (pa.types.is_boolean, _boolean),
    (pa.types.is_timestamp, _timestamp),
    (pa.types.is_date32, _date),
    (pa.types.is_decimal128, _decimal),
    (pa.types.is_binary, _binary),
    (pa.types.is_struct, _struct),
    (pa.types.is_list, _list),
    (pa.types.is_map, _map),
    (pa.types.is_null, _null),
)
