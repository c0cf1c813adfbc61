"""The compression codecs of record batches, as other Kafka clients write and read them.

Two of them need care beyond a library call. *Snappy*: Java wraps raw blocks in a chunked framing of its own, librdkafka
writes one raw block; we read both and write the chunked one. *LZ4*: Java refuses frames whose blocks depend on each
other, which is what cramjam's frame encoder writes, so we build the frame around independent blocks ourselves.

What a batch decompresses to is bounded: 100 kB of zstd may stand for 3 GB, by damage or by intent, and the process
would be killed instead of raising anything. Java's consumer has no such bound, for it decompresses record by record.
librdkafka bounds zstd by receive.message.max.bytes, 100 MB, and so refuses batches that brokers accept.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

import cramjam
import numpy as np

from sparkrelay.errors import ConfigException

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CODEC_IDS", "CODEC_NAMES", "CodecError", "codec_id", "compress", "decompress"]

CODEC_NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")
"""Kafka's names; the position is the number in a batch's attributes."""

CODEC_IDS: Final = {name: number for number, name in enumerate(CODEC_NAMES)}

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_CHUNK: Final = 32 * 1024

# Magic, version 1 with independent blocks and no checksums, blocks of at most 64 KiB, the descriptor's xxHash byte.
_LZ4_HEADER: Final = bytes.fromhex("04224d18604082")
_LZ4_CHUNK: Final = 64 * 1024
_LZ4_STORED: Final = 0x80000000

# No snappy element yields more than 64 bytes from 3, so a larger claim is a lie told to make us allocate.
_SNAPPY_MAX_RATIO: Final = 22

# As much as Java's arrays hold: twice what a megabyte of gzip, the most that a broker takes unless told otherwise, can
# stand for. Not Final: tests lower it.
_MOST_BYTES = (1 << 31) - 1
# One byte stands for so many at most: deflate's longest copy, LZ4's length bytes, zstd's blocks of one repeated byte.
_GZIP_MAX_RATIO: Final = 1_032
_LZ4_MAX_RATIO: Final = 255
_ZSTD_MAX_RATIO: Final = 32 * 1024
# Room for what most batches hold, and how much more is made if it does not do.
_FIRST_ROOM: Final = 8
_MORE_ROOM: Final = 8
_NO_ROOM_LEFT: Final = "failed to write whole buffer"


class CodecError(ValueError):
    """Compressed bytes are not what their codec writes; callers wrap it with topic, partition and offset."""


def codec_id(name: str) -> int:
    """Return the number of a codec.

    Raises:
        ConfigException: Kafka has no codec of that name.
    """
    try:
        return CODEC_IDS[name]
    except KeyError:
        raise ConfigException(f"compression.type={name!r} is unknown; use one of {', '.join(CODEC_NAMES)}") from None


def compress(data: Any, codec: int) -> Any:
    """Compress bytes; returns a bytes-like object."""
    return _COMPRESS[codec](data)


def decompress(data: Any, codec: int) -> Any:
    """Decompress bytes; returns a bytes-like object.

    Raises:
        CodecError: the bytes are damaged, stand for too many, or the codec number is unknown.
    """
    if codec >= len(_DECOMPRESS):
        raise CodecError(f"compression codec {codec} is unknown; this reader knows {', '.join(CODEC_NAMES)}")
    try:
        return _DECOMPRESS[codec](data)
    except CodecError:
        raise
    except Exception as error:
        # Cramjam raises several unrelated types for damaged input, plain Exception among them.
        raise CodecError(f"damaged {CODEC_NAMES[codec]} data: {error}") from error


def _bounded(name: str, codec: Any, max_ratio: int) -> Callable[[Any], Any]:
    """Return a codec's ``decompress`` that stops at the bound."""

    def decompress(data: Any) -> Any:
        if len(data) * max_ratio <= _MOST_BYTES:
            return codec.decompress(data)
        room = _FIRST_ROOM * len(data)
        while True:
            room = min(room, _MOST_BYTES)
            try:
                plain = np.empty(room, np.uint8)
                return plain[: codec.decompress_into(data, plain)]
            except MemoryError as error:
                raise CodecError(
                    f"there is no memory for what {len(data)} bytes of {name} hold; {room} bytes were asked for"
                ) from error
            except Exception as error:
                # Damage looks the same until there is room enough.
                if room < _MOST_BYTES:
                    room *= _MORE_ROOM
                elif _NO_ROOM_LEFT in str(error):
                    raise _too_large(len(data), name) from error
                else:
                    raise

    return decompress


def _too_large(size: int, name: str) -> CodecError:
    return CodecError(
        f"{size} bytes of {name} hold more than {_MOST_BYTES} bytes, the most that is taken of one batch; seek() past "
        "it to go on without it, and let its producer write smaller batches"
    )


def _compress_snappy(data: Any) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_CHUNK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_CHUNK]))
        parts += (struct.pack(">i", len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: Any) -> Any:
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, _MOST_BYTES, len(view))
    position, parts, room = len(_XERIAL_HEADER), [], _MOST_BYTES
    while position < len(view):
        if position + 4 > len(view):
            raise CodecError("damaged snappy data: a chunk's length is cut off")
        (size,) = struct.unpack_from(">i", view, position)
        position += 4
        if size < 0 or position + size > len(view):
            raise CodecError(f"damaged snappy data: a chunk of {size} bytes, {len(view) - position} left")
        parts.append(bytes(_decompress_snappy_block(view[position : position + size], room, len(view))))
        room -= len(parts[-1])
        position += size
    return b"".join(parts)


def _decompress_snappy_block(block: memoryview, room: int, size: int) -> Any:
    claimed = cramjam.snappy.decompress_raw_len(block)
    if claimed > _SNAPPY_MAX_RATIO * len(block) + 64:
        raise CodecError(f"damaged snappy data: {len(block)} bytes claim to hold {claimed}")
    if claimed > room:
        raise _too_large(size, "snappy")
    return cramjam.snappy.decompress_raw(block)


def _compress_lz4(data: Any) -> bytes:
    view = memoryview(data)
    parts = [_LZ4_HEADER]
    for start in range(0, len(view), _LZ4_CHUNK):
        chunk = view[start : start + _LZ4_CHUNK]
        block = bytes(cramjam.lz4.compress_block(chunk, store_size=False))
        if len(block) < len(chunk):
            parts += (struct.pack("<I", len(block)), block)
        else:
            parts += (struct.pack("<I", len(chunk) | _LZ4_STORED), bytes(chunk))
    parts.append(b"\0\0\0\0")
    return b"".join(parts)


_COMPRESS: Final[tuple[Callable[[Any], Any], ...]] = (
    lambda data: data,
    lambda data: cramjam.gzip.compress(data, level=6),
    _compress_snappy,
    _compress_lz4,
    lambda data: cramjam.zstd.compress(data, level=3),
)

_DECOMPRESS: Final[tuple[Callable[[Any], Any], ...]] = (
    lambda data: data,
    _bounded("gzip", cramjam.gzip, _GZIP_MAX_RATIO),
    _decompress_snappy,
    _bounded("lz4", cramjam.lz4, _LZ4_MAX_RATIO),
    _bounded("zstd", cramjam.zstd, _ZSTD_MAX_RATIO),
)
