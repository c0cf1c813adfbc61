"""Throw damaged record batches at the decoder: `python fuzz_decoder.py --count 100000 --seed 7`.

Each input starts as real encoded batches. Most mutations are followed by a repair of lengths and checksum, because a
checksum hides whatever lies behind it. The input lies between two pages that nobody may touch, and so does what is
decompressed: reading one byte too far kills the process, which whoever started it sees. The answer is compared with a
second decoder, below, written from the format's description in plain Python: both give the same records, or ours
raises a named error where the other finds something wrong.

Each input has a seed of its own, printed when it fails; `--count 1 --seed N` runs it alone.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import mmap
import random
import resource
import struct
import sys

import crc32c
import numpy as np
import pyarrow as pa

from sparkrelay.errors import RecordException, UnsupportedVersionException
from sparkrelay.records.batches import codecs, decode as decoder
from sparkrelay.records.batches.decode import HEADERS_TYPE, AbortedTransaction, decode
from sparkrelay.records.batches.encode import ProducerState, encode
from sparkrelay.settings import DECOMPRESSED_BATCH_BYTES

HEADER = 61
CRC_START = 21
# Where the header's numbers are, and their formats.
FIELDS = {
    "base offset": (0, ">q"), "length": (8, ">i"), "epoch": (12, ">i"), "magic": (16, ">b"), "attributes": (21, ">h"),
    "last delta": (23, ">i"), "base time": (27, ">q"), "max time": (35, ">q"), "producer": (43, ">q"),
    "producer epoch": (51, ">h"), "sequence": (53, ">i"), "count": (57, ">i"),
}  # fmt: skip
ODD_NUMBERS = (0, 1, 2, 3, -1, -2, 7, 48, 49, 61, 127, 128, 255, 1 << 15, (1 << 31) - 1, 1 << 31, 1 << 32, 1 << 62,
               (1 << 63) - 1, -(1 << 31), -(1 << 63))  # fmt: skip
ODD_BYTES = (0, 1, 2, 0x7F, 0x80, 0x81, 0xFE, 0xFF)
#: Varints at the edges of their types, and some that are too long.
ODD_VARINTS = tuple(
    bytes.fromhex(text)
    for text in (
        "00", "01", "02", "7f", "8001", "feffffff0f", "ffffffff0f", "feffffff1f", "ffffffff7f", "808080808000",
        "feffffffffffffffff01", "ffffffffffffffffff01", "ffffffffffffffffff02", "8080808080808080808000",
    )
)  # fmt: skip
PAGE = mmap.PAGESIZE
_SPARE, _MARK = 64, 0xA5


class Enclosure:
    """Memory with a forbidden page on either side."""

    def __init__(self, pages):
        self.size = pages * PAGE
        self._map = mmap.mmap(-1, self.size + 2 * PAGE)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self._view = memoryview(self._map)[PAGE : PAGE + self.size]
        libc = ctypes.CDLL(None, use_errno=True)
        for at in (base, base + PAGE + self.size):
            if libc.mprotect(ctypes.c_void_p(at), ctypes.c_size_t(PAGE), 0):
                raise OSError(ctypes.get_errno(), "mprotect failed")

    def hold(self, data, *, at_end):
        """Return a view of the data that ends (or begins) where nobody may read on."""
        size = len(data)
        start = self.size - size if at_end else 0
        self._view[start : start + size] = data
        return self._view[start : start + size]


class Enclosures:
    """Takes turns with a few, for what one call of the decoder needs at once."""

    def __init__(self, number, pages, dice):
        self._all = [Enclosure(pages) for _ in range(number)]
        self._next = 0
        self._dice = dice

    def hold(self, data):
        enclosure = self._all[self._next]
        if len(data) > enclosure.size:
            return data
        self._next = (self._next + 1) % len(self._all)
        return enclosure.hold(data, at_end=self._dice.random() < 0.8)


class Watched:
    """Makes the buffers of a reader of columns with marks behind them."""

    def __init__(self, reader):
        self.made = []
        self._plain = reader.buffers_of
        reader.buffers_of = self

    def __call__(self, node, count):
        own = self._plain(node, count)
        for name in ("valid", "data", "lengths"):
            if (array := getattr(own, name)) is not None:
                wide = np.full(array.nbytes + _SPARE, _MARK, np.uint8)
                wide[: array.nbytes] = 0
                self.made.append((wide, array.nbytes))
                setattr(own, name, wide[: array.nbytes].view(array.dtype))
        return own

    def check(self):
        for wide, size in self.made:
            assert (wide[size:] == _MARK).all(), "written beside a buffer"
        self.made.clear()


# -- material ----------------------------------------------------------------------------------------------------------


def material(dice):
    """Batches as the broker would have them, each a bytearray with its base offset in it."""
    codec = dice.choice(codecs.CODEC_NAMES) if dice.random() < 0.6 else "none"
    batches, offset = [], dice.choice((0, 0, 5, 1 << 40))
    for _ in range(dice.choice((1, 1, 2, 3, 5))):
        kind = dice.random()
        if kind < 0.12:
            raw = control(dice.randrange(3), commit=dice.random() < 0.5)
        else:
            raw = data_batch(dice, codec, transactional=kind < 0.4)
        if dice.random() < 0.1:
            put(raw, "max time", 77_000)
            put(raw, "attributes", get(raw, "attributes") | 8)
        put(raw, "base offset", offset)
        put(raw, "epoch", dice.choice((-1, 0, 3, 4)))
        repair(raw)
        offset += get(raw, "last delta") + 1 + (dice.randrange(4) if dice.random() < 0.2 else 0)
        batches.append(raw)
    return batches


def data_batch(dice, codec, *, transactional):
    rows = dice.choice((1, 1, 2, 3, 8, 30))
    text = [None if dice.random() < 0.2 else dice.randbytes(dice.choice((0, 1, 5, 70, 200))) for _ in range(2 * rows)]
    headers = None
    if dice.random() < 0.4:
        entries = [{"key": "h", "value": b"1"}, {"key": "naïve", "value": None}, {"key": "", "value": b""}]
        headers = pa.array([entries[: dice.randrange(4)] or None for _ in range(rows)], HEADERS_TYPE)
    (batch,) = encode(
        pa.array(text[:rows], pa.binary()),
        pa.array(text[rows:], pa.binary()),
        timestamps=pa.array([dice.choice((0, 1_000, 1_700_000_000_000)) for _ in range(rows)], pa.int64()),
        headers=headers,
        compression=codec,
        producer=ProducerState(dice.randrange(3), 0, 0) if transactional else None,
        transactional=transactional,
    )
    return bytearray(batch.data)


def control(producer, *, commit):
    key, value = struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, 0)
    record = b"\0\0\0" + bytes([len(key) * 2]) + key + bytes([len(value) * 2]) + value + b"\0"
    body = bytes([len(record) * 2]) + record
    head = struct.pack(">qiibIhiqqqhii", 0, 49 + len(body), 0, 2, 0, 0x30, 0, 0, 0, producer, 0, -1, 1)
    return bytearray(head + body)


def get(raw, name):
    at, kind = FIELDS[name]
    return struct.unpack_from(kind, raw, at)[0]


def put(raw, name, value):
    at, kind = FIELDS[name]
    size = struct.calcsize(kind)
    raw[at : at + size] = (value & ((1 << 8 * size) - 1)).to_bytes(size, "big")


def repair(raw, *, length=True):
    """Make length and checksum right."""
    if len(raw) < HEADER:
        return
    if length:
        put(raw, "length", len(raw) - 12)
    raw[17:21] = crc32c.crc32c(bytes(raw[CRC_START:])).to_bytes(4, "big")


# -- mutations ---------------------------------------------------------------------------------------------------------


def mutate_bytes(dice, data, lowest=0):
    """Change some bytes behind ``lowest``."""
    for _ in range(dice.choice((1, 1, 1, 2, 5))):
        if len(data) <= lowest:
            return
        at = dice.randrange(lowest, len(data))
        match dice.randrange(7):
            case 0:
                data[at] ^= 1 << dice.randrange(8)
            case 1:
                data[at] = dice.choice(ODD_BYTES)
            case 2:
                del data[at : at + dice.choice((1, 2, 5, 50))]
            case 3:
                data[at:at] = dice.choice(ODD_VARINTS)
            case 4:
                odd = dice.choice(ODD_VARINTS)
                data[at : at + len(odd)] = odd
            case 5:
                del data[at:]
            case 6:
                data[at:at] = data[max(lowest, at - dice.choice((1, 8, 30))) : at]


def mutate_records(dice, raw):
    """Change the records of a batch, also within their compression."""
    codec = get(raw, "attributes") & 7
    if not codec or codec > 4 or dice.random() < 0.25:
        mutate_bytes(dice, raw, HEADER)
        return
    try:
        plain = bytearray(codecs.decompress(bytes(raw[HEADER:]), codec, DECOMPRESSED_BATCH_BYTES))
    except codecs.CodecError:
        return
    mutate_bytes(dice, plain)
    raw[HEADER:] = codecs.compress(bytes(plain), codec)


def mutate_header(dice, raw):
    name = dice.choice(list(FIELDS))
    value = dice.choice(ODD_NUMBERS) if dice.random() < 0.6 else get(raw, name) + dice.choice((-2, -1, 1, 2))
    if name == "attributes":
        value = dice.choice((0, 1, 2, 3, 4, 5, 7, 8, 0x10, 0x20, 0x30, 0x1F, dice.randrange(1 << 16)))
    put(raw, name, value)
    return name


def mutated(dice):
    """Return an input."""
    batches = material(dice)
    for _ in range(dice.choice((0, 1, 1, 1, 2, 3))):
        index = dice.randrange(len(batches))
        raw, length = batches[index], True
        what = dice.choice(("records", "records", "records", "header", "header", "bytes", "order"))
        match what if len(raw) >= HEADER else "order":
            case "records":
                mutate_records(dice, raw)
            case "header":
                length = mutate_header(dice, raw) != "length"
            case "bytes":
                mutate_bytes(dice, raw)
            case "order":
                dice.shuffle(batches)
        if dice.random() < 0.9:
            repair(raw, length=length)
    data = bytearray(b"".join(batches))
    if dice.random() < 0.15:
        mutate_bytes(dice, data)
    elif dice.random() < 0.15:
        del data[dice.randrange(len(data) + 1) :]
    return bytes(data)


# -- the second decoder ------------------------------------------------------------------------------------------------


class DamageError(Exception):
    """What the second decoder finds wrong."""


def varint(data, at, end, bits):
    value = shift = 0
    while True:
        if at >= end or shift > bits:
            raise DamageError("varint")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    if value >> bits:
        raise DamageError("varint too large")
    return (value >> 1) ^ -(value & 1), at


def blob(data, at, end, *, nullable):
    size, at = varint(data, at, end, 32)
    if size < (-1 if nullable else 0) or size > end - at:
        raise DamageError("length")
    return (None, at) if size < 0 else (data[at : at + size], at + size)


def wrapped(number):
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def second_decode(data, start, aborted, *, check_crc, read_committed):
    """Return rows (offset, timestamp, type, key, value, headers) and the offset behind them."""
    rows, at, floor, behind = [], 0, 0, start
    pending = sorted(aborted, key=lambda entry: entry.first_offset)
    out = set()
    while len(data) - at >= 17:
        (base, length, _, magic) = struct.unpack_from(">qiib", data, at)
        if magic & 0xFF < 2 and length >= 14:
            raise DamageError("old format")
        if length < HEADER - 12:
            raise DamageError("length")
        end = at + 12 + length
        if end > len(data):
            break
        if magic != 2:
            raise DamageError("magic")
        crc, attributes, delta, base_time, max_time, producer, _, _, count = struct.unpack_from(
            ">Ihiqqqhii", data, at + 17
        )
        attributes &= 0xFFFF
        last = base + delta
        if base < 0 or delta < 0 or last >= (1 << 63) - 1:
            raise DamageError("offsets")
        if base < floor:
            raise DamageError("order")
        if count < 0 or count - 1 > delta or (not attributes & 7 and count * 7 > end - at - HEADER):
            raise DamageError("count")
        body, tail = data[at + HEADER : end], data[at + CRC_START : end]
        at, floor = end, last + 1
        sound = not check_crc or crc32c.crc32c(tail) == crc
        if read_committed and (pending or out):
            while pending and pending[0].first_offset <= last:
                out.add(pending.pop(0).producer_id)
            if attributes & 0x10 and producer in out:
                if not attributes & 0x20:
                    behind = last + 1
                    continue
                if not sound:
                    raise DamageError("crc")
                if count and marker(body) == 0:
                    out.discard(producer)
        if last < start:
            continue
        behind = last + 1
        if attributes & 0x20 or not count:
            continue
        if not sound:
            raise DamageError("crc")
        if attributes & 7:
            try:
                body = bytes(codecs.decompress(body, attributes & 7, DECOMPRESSED_BATCH_BYTES))
            except codecs.CodecError as error:
                raise DamageError(str(error)) from error
            if count * 7 > len(body):
                raise DamageError("count")
        rows += records(body, base, delta, base_time, max_time, count, start, append=bool(attributes & 8))
    return rows, max(start, behind)


def records(body, base, last_delta, base_time, max_time, count, start, *, append):
    at, previous, rows = 0, -1, []
    for _ in range(count):
        length, at = varint(body, at, len(body), 32)
        if length < 6 or length > len(body) - at:
            raise DamageError("record length")
        end = at + length
        time_delta, at = varint(body, at + 1, end, 64)
        delta, at = varint(body, at, end, 32)
        if delta <= previous or delta > last_delta:
            raise DamageError("offset delta")
        previous = delta
        if base + delta < start:
            at = end
            continue
        key, at = blob(body, at, end, nullable=True)
        value, at = blob(body, at, end, nullable=True)
        number, at = varint(body, at, end, 32)
        if number < 0 or number > (end - at) // 2:
            raise DamageError("header count")
        headers = []
        for _ in range(number):
            name, at = blob(body, at, end, nullable=False)
            content, at = blob(body, at, end, nullable=True)
            headers.append({"key": name.decode("utf-8", "replace"), "value": content})
        if at != end:
            raise DamageError("record length")
        time = max_time if append else wrapped(base_time + time_delta)
        rows.append((base + delta, time, int(append), key, value, headers or None))
    if at != len(body):
        raise DamageError("rest")
    return rows


def marker(body):
    length, at = varint(body, 0, len(body), 32)
    if length < 6 or length > len(body) - at:
        raise DamageError("marker")
    end = at + length
    _, at = varint(body, at + 1, end, 64)
    _, at = varint(body, at, end, 32)
    key, _ = blob(body, at, end, nullable=True)
    if key is None or len(key) < 4:
        raise DamageError("marker")
    return int.from_bytes(key[2:4], "big")


# -- comparing ---------------------------------------------------------------------------------------------------------


def rows_of(batch):
    times = batch.column("timestamp").view(pa.int64())
    columns = [batch.column("offset"), times, *(batch.column(n) for n in ("timestampType", "key", "value", "headers"))]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def check(seed, enclosures):
    """Run one input; return whether it was decoded."""
    dice = random.Random(seed)
    data = mutated(dice)
    start = dice.choice((0, 0, 0, 1, 7, (1 << 40) + 1))
    settings = {"check_crc": dice.random() < 0.8, "read_committed": dice.random() < 0.7}
    aborted = [AbortedTransaction(dice.randrange(3), dice.randrange(20)) for _ in range(dice.choice((0, 0, 1, 2)))]
    expected: tuple | None
    try:
        expected = second_decode(data, start, aborted, **settings)
    except DamageError:
        expected = None
    at = f"seed {seed}"
    try:
        got = decode(enclosures.hold(data), topic="t", partition=3, start=start, aborted=aborted, **settings)
    except (RecordException, UnsupportedVersionException) as error:
        assert "t-3" in str(error), at  # noqa: PT017 - one of two right outcomes
        assert expected is None, f"{at}: {error}, but the records are {expected}"  # noqa: PT017
        return False
    assert expected is not None, f"{at}: decoded what is damaged"
    got.batch.validate(full=True)
    assert (rows_of(got.batch), got.next_offset) == expected, at
    assert got.record_count == len(expected[0]), at
    if dice.random() < 0.2 and expected[0]:
        in_steps(lambda: enclosures.hold(data), start, aborted, settings, expected, dice.randrange(1, 5), at)
    return True


def in_steps(held, start, aborted, settings, expected, limit, at):
    """A few records at a time are the same records."""
    rows, position = [], start
    while position < expected[1]:
        got = decode(held(), topic="t", partition=3, start=position, aborted=aborted, max_records=limit, **settings)
        assert got.next_offset > position, at
        assert got.record_count <= limit, at
        rows, position = rows + rows_of(got.batch), got.next_offset
    assert (rows, position) == expected, f"{at}, {limit} at a time"


def throw(description, begin, found):
    """Run a script: throw as many inputs as its command line says, and say how many of them were what is looked for.

    Args:
        description: of the script.
        begin: makes, of a random generator, what takes the seed of an input and says whether, or how often, it was.
        found: how that is said.
    """
    faulthandler.enable()
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first input; the next have the numbers behind it")
    arguments = parser.parse_args()
    check, count = begin(random.Random(arguments.seed)), 0
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        if seed % 1_000 == 0:
            print(f"at seed {seed}", flush=True)  # where a crash was
        try:
            count += check(seed)
        except BaseException:
            sys.stderr.write(f"input with seed {seed}\n")
            raise
    print(f"{arguments.count} inputs, {found.format(count)}")


def bounded_enclosures(dice):
    """Return a few small enclosures, in a process that has little memory from now on."""
    # Nothing here needs much: what a length asks for and nobody can give is a MemoryError.
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    return Enclosures(4, 4, dice)


def begin(dice):
    enclosures, plain = Enclosures(16, 16, dice), codecs.decompress
    decoder.decompress = lambda *given: np.frombuffer(enclosures.hold(bytes(plain(*given))), np.uint8)
    return lambda seed: check(seed, enclosures)


if __name__ == "__main__":
    throw(__doc__, begin, "{} decoded")
