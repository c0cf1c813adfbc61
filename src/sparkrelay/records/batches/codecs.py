"""The compression codecs of record batches, as other Kafka clients write and read them.

Two need more than a library call. *Snappy*: Java wraps raw blocks in its own chunked framing, librdkafka writes one raw
block; both are read, and the chunked one is written. *LZ4*: Java rejects frames of dependent blocks, which cramjam's
frame encoder writes, so the frame is built here around independent blocks.

The decompressed size is bounded: 100 kB of zstd may hold 3 GB, by damage or by intent, and the process would be killed.
Sizes that the data claim are not trusted: buffers grow in steps, each when the last one is full. Java's consumer has no
such bound, as it decompresses record by record; librdkafka has one for zstd, 100 MB.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

import cramjam
import numpy as np

from sparkrelay.errors import ConfigException

if TYPE_CHECKING:
    from collections.abc import Callable

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

# No snappy element yields more than 64 bytes from 3; a larger claim is wrong.
_SNAPPY_MAX_RATIO: Final = 22

# The factor of the first buffer, which holds most batches, and of each next one. Small buffers cost almost nothing.
_ROOM: Final = 8
_SMALL_ROOM: Final = 1 << 20
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


def decompress(data: Any, codec: int, max_bytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Decompress bytes, to ``max_bytes`` at most.

    Raises:
        CodecError: the bytes are damaged, stand for too many, or the codec number is unknown.
    """
    if codec >= len(CODEC_NAMES):
        raise CodecError(f"compression codec {codec} is unknown; this reader knows {', '.join(CODEC_NAMES)}")
    name = CODEC_NAMES[codec]
    try:
        plain = _decompress_snappy(data, max_bytes) if name == "snappy" else _decompress_in_steps(data, name, max_bytes)
    except CodecError:
        raise
    except MemoryError as error:
        raise CodecError(f"not enough memory to decompress {len(data)} bytes of {name}") from error
    except Exception as error:
        # Cramjam raises several unrelated types for damaged input, even plain Exception.
        raise CodecError(f"damaged {name} data: {error}") from error
    if plain is None:
        raise CodecError(
            f"its {len(data)} bytes of {name} hold more than max.decompressed.batch.bytes={max_bytes}; raise it "
            "if the batch is sound, or have its producer write smaller ones. A consumer may seek() past it"
        )
    return plain


def _decompress_in_steps(data: Any, name: str, max_bytes: int) -> np.ndarray[Any, np.dtype[np.uint8]] | None:
    """Decompress a stream of frames; None if that is too much."""
    room = max(_ROOM * len(data), min(_ROOM * _ROOM * (len(data) + 1), _SMALL_ROOM))
    while True:
        plain = np.empty(min(room, max_bytes), np.uint8)
        try:
            size = getattr(cramjam, name).decompress_into(data, plain)
        except Exception as error:
            # Damage looks the same until the buffer is large enough.
            if room < max_bytes:
                room *= _ROOM
                del plain
            elif _NO_ROOM_LEFT in str(error):
                return None
            else:
                raise
        else:
            plain.resize(size, refcheck=False)
            return plain


def _compress_snappy(data: Any) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_CHUNK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_CHUNK]))
        parts += (struct.pack(">i", len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: Any, max_bytes: int) -> np.ndarray[Any, np.dtype[np.uint8]] | None:
    """Return what snappy's blocks hold, None if that is too much. A block says its size, which is compared first."""
    blocks = _snappy_blocks(memoryview(data))
    sizes = [_claimed(block) for block in blocks]
    if sum(sizes) > max_bytes:
        return None
    plain = np.empty(sum(sizes), np.uint8)
    room, at = plain.data, 0
    for block, size in zip(blocks, sizes, strict=True):
        cramjam.snappy.decompress_raw_into(block, room[at : at + size])
        at += size
    return plain


def _snappy_blocks(view: memoryview) -> list[memoryview]:
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return [view]
    position, blocks = len(_XERIAL_HEADER), []
    while position < len(view):
        if position + 4 > len(view):
            raise CodecError("damaged snappy data: a chunk's length is cut off")
        (size,) = struct.unpack_from(">i", view, position)
        position += 4
        if size < 0 or position + size > len(view):
            raise CodecError(f"damaged snappy data: a chunk of {size} bytes, {len(view) - position} left")
        blocks.append(view[position : position + size])
        position += size
    return blocks


def _claimed(block: memoryview) -> int:
    claimed = int(cramjam.snappy.decompress_raw_len(block))
    if claimed > _SNAPPY_MAX_RATIO * len(block) + 64:
        raise CodecError(f"damaged snappy data: {len(block)} bytes claim to hold {claimed}")
    return claimed


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
