"""Throw damaged rows at their reader: `python fuzz_rows.py --count 100000 --seed 7`.

Each input is rows of random types with lists, maps and structs of them, some bytes of which are changed. They end where
nobody may read on, as in ``fuzz_decoder``, and what comes out is compared with a second reader in plain Python: both
give the same values, or ours raises its error where the other finds something wrong.
"""

from __future__ import annotations

import itertools
import random

import numpy as np
import pyarrow as pa
from fuzz_decoder import ODD_BYTES, DamageError, bounded_enclosures, mutate_bytes, throw, varint

from sparkrelay.errors import SerializationException
from sparkrelay.records.keys import key_bytes, key_columns

#: Type -> tag, bytes of content.
NUMBERS = {
    pa.int8(): (0x11, 1), pa.int16(): (0x12, 2), pa.int32(): (0x14, 4), pa.int64(): (0x18, 8), pa.bool_(): (0x20, 1),
    pa.float64(): (0x28, 8), pa.date32(): (0x34, 4), pa.timestamp("us", "UTC"): (0x38, 8),
    pa.timestamp("us"): (0x39, 8), pa.decimal128(38, 4): (0x60, 16),
}  # fmt: skip
TEXTS = {pa.string(): 0x50, pa.binary(): 0x51}
LEAVES = [*NUMBERS, *TEXTS, *TEXTS]


def kind_of(dice, depth=0):
    what = dice.choice(("leaf", "leaf", "list", "large", "map", "struct") if depth < 4 else ("leaf",))
    match what:
        case "list":
            return pa.list_(kind_of(dice, depth + 1))
        case "large":
            return pa.large_list(kind_of(dice, depth + 1))
        case "map":
            return pa.map_(kind_of(dice, depth + 2), kind_of(dice, depth + 1))
        case "struct":
            return pa.struct([(f"f{index}", kind_of(dice, depth + 1)) for index in range(dice.choice((1, 1, 2, 3)))])
    return dice.choice(LEAVES)


def value_of(dice, kind, *, null=True):
    if null and dice.random() < 0.2:
        return None
    if pa.types.is_struct(kind):
        return {field.name: value_of(dice, field.type) for field in kind}
    size = dice.choice((0, 1, 1, 2, 5))
    if pa.types.is_map(kind):
        return [(value_of(dice, kind.key_type, null=False), value_of(dice, kind.item_type)) for _ in range(size)]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [value_of(dice, kind.value_type) for _ in range(size)]
    if kind in TEXTS:
        text = "".join(dice.choice("a\0ü") for _ in range(size))
        return text if pa.types.is_string(kind) else text.encode()
    if pa.types.is_boolean(kind):
        return dice.random() < 0.5
    return dice.choice((0, 1, -1, 100, -128))


def mutated(dice, packed):
    """Return rows of which some are damaged."""
    rows = []
    for row in packed:
        data = bytearray(row)
        if dice.random() < 0.6:
            if dice.random() < 0.3:
                data[dice.randrange(len(data))] = dice.choice((*ODD_BYTES, 0x70, 0x72, 0x74, 0x50))
            else:
                mutate_bytes(dice, data)
        rows.append(bytes(data))
    return rows


# -- the second reader -------------------------------------------------------------------------------------------------


def second_read(row, kinds):
    if row[:1] != b"\x01":
        raise DamageError("version")
    values, at = [], 1
    for kind in kinds:
        value, at = one(row, at, len(row), kind)
        values.append(value)
    if at != len(row):
        raise DamageError("bytes behind")
    return values


def one(data, at, end, kind):
    if at >= end:
        raise DamageError("too short")
    tag, at = data[at], at + 1
    if tag == 0:
        return None, at
    if pa.types.is_struct(kind):
        if tag != 0x70 or at >= end or data[at] != kind.num_fields:
            raise DamageError("struct")
        at, values = at + 1, []
        for field in kind:
            value, at = one(data, at, end, field.type)
            values.append(value)
        return tuple(values), at
    if pa.types.is_map(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        if tag != (0x74 if pa.types.is_map(kind) else 0x72):
            raise DamageError("list")
        return elements(data, at, end, kind)
    if kind in TEXTS:
        if tag != TEXTS[kind]:
            raise DamageError("text")
        return text(data, at, end, kind)
    wanted, width = NUMBERS[kind]
    if tag != wanted or width > end - at:
        raise DamageError("number")
    number = int.from_bytes(data[at : at + width], "big") - (1 << (8 * width - 1))
    if pa.types.is_boolean(kind):
        number = int(number != 0)
    elif pa.types.is_floating(kind) and number < 0:
        number ^= (1 << 63) - 1
    return number, at + width


def elements(data, at, end, kind):
    count, at = varint(data, at, end, 32)
    size, at = varint(data, at, end, 32)
    if count < 0 or size < 0 or size > end - at:
        raise DamageError("size")
    end, values = at + size, []
    for _ in range(count):
        if pa.types.is_map(kind):
            key, at = one(data, at, end, kind.key_type)
            value, at = one(data, at, end, kind.item_type)
            if key is None:
                raise DamageError("null key")
            values.append((key, value))
        else:
            value, at = one(data, at, end, kind.value_type)
            values.append(value)
    if at != end:
        raise DamageError("bytes behind")
    return values, at


def text(data, at, end, kind):
    out = bytearray()
    while at < end:
        if data[at]:
            out.append(data[at])
            at += 1
        elif at + 1 < end and data[at + 1] == 0xFF:
            out.append(0)
            at += 2
        else:
            if pa.types.is_string(kind):
                try:
                    out.decode()
                except UnicodeDecodeError:
                    raise DamageError("UTF-8") from None
            return bytes(out), at + 1
    raise DamageError("text without end")


def plain(array):
    """Return the values of an array as the second reader has them."""
    kind, valid = array.type, array.is_valid().to_pylist()
    if pa.types.is_struct(kind):
        values = list(zip(*(plain(array.field(index)) for index in range(kind.num_fields)), strict=True))
    elif pa.types.is_map(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner, ends = plain(array.values), array.offsets.to_pylist()
        values = [inner[start:end] for start, end in itertools.pairwise(ends)]
    elif kind in TEXTS:
        values = array.cast(pa.binary()).to_pylist()
    elif pa.types.is_decimal(kind):
        halves = np.frombuffer(array.buffers()[1], np.uint64).tolist() if len(array) else []
        whole = [low | high << 64 for low, high in zip(halves[::2], halves[1::2], strict=True)]
        values = [number - (1 << 128) if number >> 127 else number for number in whole]
    elif pa.types.is_boolean(kind):
        values = [int(value or 0) for value in array.to_pylist()]
    else:
        width = NUMBERS[kind][1]
        values = np.frombuffer(array.buffers()[1], f"=i{width}").tolist() if len(array) else []
    return [value if there else None for value, there in zip(values, valid, strict=True)]


def check(seed, enclosures):
    """Read one input with both; returns whether it was read."""
    dice = random.Random(seed)
    kinds = [kind_of(dice) for _ in range(dice.choice((1, 1, 2, 4)))]
    count = dice.choice((1, 1, 2, 5))
    columns = [pa.array([value_of(dice, kind) for _ in range(count)], kind) for kind in kinds]
    # (A single column may be written in another way.)
    columns, kinds = [*columns, pa.array([True] * count)], [*kinds, pa.bool_()]
    rows = mutated(dice, key_bytes(columns, normal=False).to_pylist())
    offsets = np.cumsum([0, *map(len, rows)]).astype(np.int32)
    data = pa.py_buffer(enclosures.hold(b"".join(rows)))
    held = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), data])
    try:
        expected = [second_read(row, kinds) for row in rows]
    except DamageError:
        expected = None
    try:
        back = key_columns(held, pa.schema([(f"c{index}", kind) for index, kind in enumerate(kinds)]))
    except SerializationException:
        assert expected is None, f"seed {seed}: refused, though nothing is wrong"
        return False
    assert expected is not None, f"seed {seed}: something is wrong with it, and nobody says so"
    for column in back:
        column.validate()
    assert [list(row) for row in zip(*map(plain, back), strict=True)] == expected, f"seed {seed}: other values"
    return True


def begin(dice):
    enclosures = bounded_enclosures(dice)
    return lambda seed: check(seed, enclosures)


if __name__ == "__main__":
    throw(__doc__, begin, "{} read")
