"""Throw damaged Avro records at their reader: `python fuzz_avro.py --count 100000 --seed 7`.

Each input is records of a random schema, some bytes of which are changed. They end where nobody may read on, as in
``fuzz_decoder``, what is written beside a column's buffers is seen, and what comes out is compared with a second reader
in plain Python: both give the same values, or both find the same records damaged.
"""

from __future__ import annotations

import json
import math
import random
import struct

import numpy as np
import pyarrow as pa
from fuzz_decoder import DamageError, Watched, bounded_enclosures, mutate_bytes, throw

from sparkrelay.records.avro import reader as avro

LEAVES = ("boolean", "int", "long", "float", "double", "string", "bytes", "enum", "fixed")


class Schemas:
    """Makes schemas whose types have names of their own."""

    def __init__(self, dice):
        self.dice, self.named = dice, 0

    def name(self):
        self.named += 1
        return f"N{self.named}"

    def kind(self, depth=0):
        what = self.dice.choice((*LEAVES, "array", "array", "map", "record", "union") if depth < 4 else LEAVES)
        match what:
            case "array":
                return {"type": "array", "items": self.kind(depth + 1)}
            case "map":
                return {"type": "map", "values": self.kind(depth + 1)}
            case "record":
                return self.record(depth + 1)
            case "union":
                inner = self.kind(depth + 1)
                both = ["null", inner] if self.dice.random() < 0.7 else [inner, "null"]
                return inner if isinstance(inner, list) else both
            case "enum":
                return {"type": "enum", "name": self.name(), "symbols": ["A", "B", "C"]}
            case "fixed":
                return {"type": "fixed", "name": self.name(), "size": self.dice.choice((1, 2, 9))}
        return what

    def record(self, depth=0):
        fields = [{"name": f"f{n}", "type": self.kind(depth)} for n in range(self.dice.choice((1, 2, 3)))]
        return {"type": "record", "name": self.name(), "fields": fields}


def varint(value):
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*out, rest])


def written(dice, kind):
    """Return a random value's bytes."""
    if isinstance(kind, list):
        number = dice.randrange(2)
        return varint(number) + (b"" if kind[number] == "null" else written(dice, kind[number]))
    what = kind if isinstance(kind, str) else kind["type"]
    match what:
        case "boolean":
            return dice.choice((b"\0", b"\1"))
        case "int":
            return varint(dice.choice((0, -1, 300, 2**31 - 1, -(2**31))))
        case "long":
            return varint(dice.choice((0, 1, 2**63 - 1, -(2**63), dice.getrandbits(40))))
        case "float":
            return struct.pack("<f", dice.choice((0.0, -1.5, math.inf)))
        case "double":
            return struct.pack("<d", dice.random())
        case "string" | "bytes":
            text = "".join(dice.choice("a\0ü") for _ in range(dice.choice((0, 1, 5)))).encode()
            return varint(len(text)) + text
        case "enum":
            return varint(dice.randrange(3))
        case "fixed":
            return dice.randbytes(kind["size"])
        case "record":
            return b"".join(written(dice, field["type"]) for field in kind["fields"])
    blocks = b""
    for _ in range(dice.choice((0, 1, 1, 2))):
        names = [written(dice, "string") if what == "map" else b"" for _ in range(dice.choice((1, 2, 4)))]
        items = [name + written(dice, kind["values" if what == "map" else "items"]) for name in names]
        body = b"".join(items)
        blocks += varint(len(items)) + body if dice.random() < 0.6 else varint(-len(items)) + varint(len(body)) + body
    return blocks + b"\0"


# -- the second reader -------------------------------------------------------------------------------------------------


class Second:
    """Reads one record, strictly."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, size):
        if not 0 <= size <= len(self.data) - self.at:
            raise DamageError("size")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, bits=64):
        value = shift = 0
        while True:
            (byte,) = self.take(1)
            if shift == 63 and byte > 1:
                raise DamageError("varint")
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        value = (value >> 1) ^ -(value & 1)
        if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
            raise DamageError("number")
        return value

    def read(self, kind):
        if isinstance(kind, list):
            number = self.number()
            if not 0 <= number < len(kind):
                raise DamageError("branch")
            return None if kind[number] == "null" else self.read(kind[number])
        what = kind if isinstance(kind, str) else kind["type"]
        match what:
            case "boolean":
                (byte,) = self.take(1)
                if byte > 1:
                    raise DamageError("boolean")
                return bool(byte)
            case "int":
                return self.number(32)
            case "long":
                return self.number()
            case "float":
                return struct.unpack("<f", self.take(4))[0]
            case "double":
                return struct.unpack("<d", self.take(8))[0]
            case "bytes":
                return bytes(self.take(self.number()))
            case "string":
                return self.text()
            case "fixed":
                return bytes(self.take(kind["size"]))
            case "enum":
                number = self.number()
                if not 0 <= number < len(kind["symbols"]):
                    raise DamageError("enum")
                return kind["symbols"][number]
            case "record":
                return {field["name"]: self.read(field["type"]) for field in kind["fields"]}
        items = []
        while (count := self.number()) != 0:
            if count < 0:
                count = -count
                if not 0 <= self.number() <= len(self.data) - self.at:
                    raise DamageError("block")
            if count > len(self.data) - self.at:
                raise DamageError("count")
            items += [
                (self.text(), self.read(kind["values"])) if what == "map" else self.read(kind["items"])
                for _ in range(count)
            ]
        if what == "map":
            # The last of those with one key, in its own place.
            latest = {key: at for at, (key, _) in enumerate(items)}
            items = [items[at] for at in sorted(latest.values())]
        return items

    def text(self):
        try:
            return bytes(self.take(self.number())).decode()
        except UnicodeDecodeError:
            raise DamageError("UTF-8") from None


def second_read(schema, row):
    reader = Second(row)
    value = reader.read(schema)
    if reader.at != len(row):
        raise DamageError("bytes behind")
    return value


def check(seed, enclosures, watched):
    """Read one input with both; returns whether any record was damaged."""
    dice = random.Random(seed)
    schema = Schemas(dice).record()
    rows = []
    for _ in range(dice.choice((1, 2, 5))):
        data = bytearray(written(dice, schema))
        if data and dice.random() < 0.6:
            mutate_bytes(dice, data)
        rows.append(bytes(data))
    offsets = np.cumsum([0, *map(len, rows)]).astype(np.int32)
    held = pa.Array.from_buffers(
        pa.binary(), len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(enclosures.hold(b"".join(rows)))]
    )
    expected = []
    for row in rows:
        try:
            expected.append(second_read(schema, row))
        except DamageError:
            expected.append(None)
    batch, bad = avro.AvroReader(json.dumps(schema), None, "value").read(held)
    watched.check()
    batch.validate(full=True)
    damaged = [index for index, value in enumerate(expected) if value is None]
    assert [one.index for one in bad] == damaged, f"seed {seed}: {bad}, but {damaged}"
    nothing = {field["name"]: None for field in schema["fields"]}
    wanted = [nothing if value is None else value for value in expected]
    assert repr(batch.to_pylist()) == repr(wanted), f"seed {seed}: other values"
    return bool(damaged)


def begin(dice):
    enclosures, watched = bounded_enclosures(dice), Watched(avro)
    return lambda seed: check(seed, enclosures, watched)


if __name__ == "__main__":
    throw(__doc__, begin, "{} of them with damage that was found")
