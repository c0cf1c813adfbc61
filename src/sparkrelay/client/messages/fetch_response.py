"""A Fetch response whose records are views of the receive buffer.

kafka-python copies each partition's records out of the response. This is its message, compiled from the same
definition, except that ``records`` is a memoryview (or None), valid as long as it is referenced. kafka-python's own
class is left unchanged for other users in this process.
"""

from __future__ import annotations

import weakref
from typing import Any

from kafka.protocol.api_header import ResponseClassRegistry
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import FetchResponse as _StockFetchResponse
from kafka.protocol.schemas.fields.codecs import Bytes, Int32, UnsignedVarInt32


class _BytesView(Bytes):  # type: ignore[misc]
    """Kafka's ``records`` field, decoded as a slice of the input."""

    @classmethod
    def emit_decode_from(cls, ctx: Any, var_name: str, indent: str, compact: bool = False) -> None:
        size = ctx.next_var("size")
        if compact:
            UnsignedVarInt32.emit_decode_from(ctx, size, indent)
            ctx.emit(indent, f"{size} -= 1")
        else:
            Int32.emit_decode_from(ctx, size, indent)
        ctx.emit(indent, f"{var_name} = None if {size} < 0 else data[pos : pos + {size}]")
        ctx.emit(indent, f"pos += max({size}, 0)")
        ctx.emit(indent, "if pos > len(data):")
        ctx.emit(indent, "    raise ValueError('records end beyond the response')")


class FetchResponse(ApiMessage):  # type: ignore[misc]
    """Kafka's FetchResponse; ``records`` of each partition is a memoryview or None."""


# Defining a response class registers it for decoding; restore the stock class.
ResponseClassRegistry.register_response_class(weakref.proxy(_StockFetchResponse))

_records = FetchResponse._struct.fields["responses"].fields["partitions"].fields["records"]  # noqa: SLF001
_records._type = _BytesView  # noqa: SLF001
