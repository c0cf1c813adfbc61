"""Throw odd Protobuf messages at their reader: `python fuzz_protobuf.py --count 100000 --seed 7`.

Each input is messages of a random schema: fields out of order, twice, unknown, of another kind than declared, and some
bytes changed. They end where nobody may read on, as in ``fuzz_decoder``, what is written beside a column's buffers is
seen, and what comes out is compared with Google's library, message by message. Then it is written again, by both.
"""

from __future__ import annotations

import random
import struct

import numpy as np
import pyarrow as pa
from fuzz_decoder import Watched, bounded_enclosures, mutate_bytes, throw
from google.protobuf import descriptor_pb2, timestamp_pb2, wrappers_pb2

from sparkrelay.errors import SerializationException
from sparkrelay.records.protobuf import reader
from sparkrelay.records.protobuf.messages import columns_to_messages, messages_to_columns
from sparkrelay.records.protobuf.schema import as_text, protobuf_schema
from sparkrelay.records.protobuf.writer import columns_to_protobuf

T = descriptor_pb2.FieldDescriptorProto
VARINTS = (
    T.TYPE_INT32,
    T.TYPE_INT64,
    T.TYPE_UINT32,
    T.TYPE_UINT64,
    T.TYPE_SINT32,
    T.TYPE_SINT64,
    T.TYPE_BOOL,
    T.TYPE_ENUM,
)
WORDS = (T.TYPE_FIXED32, T.TYPE_SFIXED32, T.TYPE_FLOAT)
LONGS = (T.TYPE_FIXED64, T.TYPE_SFIXED64, T.TYPE_DOUBLE)
OWN = {
    "google.protobuf.Timestamp": [(1, T.TYPE_INT64, None), (2, T.TYPE_INT32, None)],
    "google.protobuf.StringValue": [(1, T.TYPE_STRING, None)],
    "google.protobuf.UInt64Value": [(1, T.TYPE_UINT64, None)],
}
NUMBERS = (0, 1, 2, 5, 127, 300, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)


class Schema:
    """A file of messages: `M0` is the one that is read; `fields` says of each what stands in it."""

    def __init__(self, dice):
        self.dice = dice
        self.proto3 = dice.random() < 0.7
        self.file = descriptor_pb2.FileDescriptorProto(
            name="f.proto", syntax="proto3" if self.proto3 else "proto2",
            dependency=["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"],
        )  # fmt: skip
        enum = self.file.enum_type.add(name="E")
        for number, word in ((0, "NONE"), (1, "ONE"), (2, "TWO"), (7, "SEVEN"), (-3, "LESS")):
            enum.value.add(name=word, number=number)
        self.fields = dict(OWN)
        self.message(0)
        files = descriptor_pb2.FileDescriptorSet()
        for known in (timestamp_pb2, wrappers_pb2):
            known.DESCRIPTOR.CopyToProto(files.file.add())
        files.file.append(self.file)
        self.text, _ = as_text(files.SerializeToString())

    def message(self, depth):
        name = f"M{len(self.file.message_type)}"
        made = self.file.message_type.add(name=name)
        mine = self.fields[name] = []
        numbers = self.dice.sample((1, 2, 3, 4, 9, 15, 16, 100, 2047, 536870911), self.dice.choice((1, 2, 4, 6)))
        if self.dice.random() < 0.3:
            made.oneof_decl.add(name="one")
        for number in numbers:
            self.field(made, mine, number, depth)
        return name

    def field(self, made, mine, number, depth):
        dice = self.dice
        kind = dice.choice((*VARINTS, *WORDS, *LONGS, T.TYPE_STRING, T.TYPE_BYTES, *([T.TYPE_MESSAGE] * 6)))
        one = made.field.add(name=f"f{number}", number=number, type=kind, label=T.LABEL_OPTIONAL)
        inner = None
        if kind == T.TYPE_ENUM:
            one.type_name = ".E"
        if kind == T.TYPE_MESSAGE:
            inner = self.message(depth + 1) if depth < 3 and dice.random() < 0.6 else dice.choice(list(OWN))
            one.type_name = f".{inner}"
        mine.append((number, kind, inner))
        if dice.random() < 0.35:
            one.label = T.LABEL_REPEATED
            if kind not in {T.TYPE_STRING, T.TYPE_BYTES, T.TYPE_MESSAGE} and dice.random() < 0.5:
                one.options.packed = dice.random() < 0.5
        elif made.oneof_decl and made.oneof_decl[0].name == "one" and dice.random() < 0.5:
            one.oneof_index = 0
        elif not self.proto3 and dice.random() < 0.2:
            one.label = T.LABEL_REQUIRED
        if len(made.oneof_decl) and not any(each.HasField("oneof_index") for each in made.field):
            # One without fields is no schema.
            if number == mine[-1][0] and one.label == T.LABEL_OPTIONAL:
                one.oneof_index = 0
            else:
                del made.oneof_decl[:]


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def value_of(dice, schema, kind, inner):
    """Return how a value stands in the bytes, and its bytes."""
    if kind in VARINTS:
        number = dice.choice((0, 1, 2, 7, (1 << 64) - 3) if kind == T.TYPE_ENUM and dice.random() < 0.9 else NUMBERS)
        return 0, varint(number)
    if kind in WORDS:
        return 5, struct.pack("<f", dice.choice((0.0, -0.0, 1.5))) if dice.random() < 0.5 else dice.randbytes(4)
    if kind in LONGS:
        return 1, struct.pack("<d", dice.choice((0.0, -0.0, 1.5))) if dice.random() < 0.5 else dice.randbytes(8)
    if kind == T.TYPE_MESSAGE:
        body = written(dice, schema, inner)
    elif kind == T.TYPE_STRING:
        body = dice.choice(("", "a", "\0ü", "word")).encode() if dice.random() < 0.97 else b"\xed\xa0\x80"
    else:
        body = dice.randbytes(dice.choice((0, 1, 5)))
    return 2, varint(len(body)) + body


def written(dice, schema, name):
    """Return the bytes of a random message."""
    if name == "google.protobuf.Timestamp" and dice.random() < 0.8:
        return b"\x08" + varint(dice.randrange(1 << 31)) + b"\x10" + varint(dice.randrange(1_000_000_000))
    out = b""
    fields = list(schema.fields[name])
    if dice.random() < 0.2:
        dice.shuffle(fields)
    else:
        fields.sort()
    for number, kind, inner in fields:
        for _ in range(dice.choice((0, 1, 1, 1, 1, 2, 3) if dice.random() < 0.3 else (1,))):
            wire, data = value_of(dice, schema, kind, inner)
            if kind in (*VARINTS, *WORDS, *LONGS) and dice.random() < 0.2:
                packed = data + b"".join(value_of(dice, schema, kind, inner)[1] for _ in range(dice.randrange(3)))
                wire, data = 2, varint(len(packed)) + packed
            out += varint(number << 3 | wire) + data
        if dice.random() < 0.05:
            other = dice.choice((6, 33, number))
            wire, data = value_of(
                dice, schema, dice.choice((T.TYPE_INT64, T.TYPE_FLOAT, T.TYPE_DOUBLE, T.TYPE_BYTES)), None
            )
            out += varint(other << 3 | wire) + data
        if dice.random() < 0.01:
            out += b"\x33\x08\x01\x34"  # a group
    return out


def check(seed, enclosures, watched):
    """Read one input with both; returns how many rows were bad."""
    dice = random.Random(seed)
    schema = Schema(dice)
    wanted = protobuf_schema(schema.text, "M0")
    index = dice.choice((None, None, b"\0", b"\4\2"))
    rows = []
    for _ in range(dice.choice((1, 2, 5))):
        data = bytearray(written(dice, schema, "M0"))
        if data and dice.random() < 0.3:
            mutate_bytes(dice, data)
        if index is not None and dice.random() < 0.98:
            data[:0] = dice.choice((index, b"\2\0")) if index == b"\0" else index
        rows.append(None if dice.random() < 0.05 else bytes(data))
    offsets = np.cumsum([0, *(len(row or b"") for row in rows)]).astype(np.int32)
    valid = pa.py_buffer(np.packbits([row is not None for row in rows], bitorder="little"))
    held = pa.Array.from_buffers(
        pa.binary(), len(rows),
        [valid, pa.py_buffer(offsets), pa.py_buffer(enclosures.hold(b"".join(row or b"" for row in rows)))],
    )  # fmt: skip
    batch, bad = reader.protobuf_to_columns(held, schema.text, "M0", wanted, index)
    watched.check()
    batch.validate(full=True)
    plain = pa.array(rows, pa.binary())
    expected, others = messages_to_columns(plain, schema.text, "M0", wanted, index)
    assert bad == others, f"seed {seed}: {bad}, but {others}"
    # NaN is no NaN.
    assert repr(batch.to_pylist()) == repr(expected.to_pylist()), f"seed {seed}: other values"
    for slice_ in (batch, batch.slice(1)):
        check_written(seed, schema.text, slice_)
    return len(bad)


def check_written(seed, text, batch):
    """Write what came out, with both."""
    results = []
    for write in (columns_to_protobuf, columns_to_messages):
        try:
            results.append(write(batch, text, "M0", b"first").to_pylist())
        except SerializationException as error:
            results.append(str(error))
    assert results[0] == results[1], f"seed {seed}: written {results[0]}, but {results[1]}"


def begin(dice):
    enclosures, watched = bounded_enclosures(dice), Watched(reader)
    return lambda seed: check(seed, enclosures, watched)


if __name__ == "__main__":
    throw(__doc__, begin, "{} bad messages")
