"""Formats of keys and values: descriptions only, importing them loads nothing heavy.

A format declares what the bytes are and what pipelines may do with it. ``formatted`` loads the code that reads and
writes them; the runtime, which alone knows Spark, derives Spark's types.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from sparkrelay.errors import SerializationException
from sparkrelay.records.avro.schema import AvroRecord, parse_schema, type_name
from sparkrelay.records.format import Format
from sparkrelay.records.json.schema import properties_of
from sparkrelay.records.protobuf import schema as protobuf

__all__ = [
    "Arrow",
    "Avro",
    "Boolean",
    "Double",
    "Float",
    "Format",
    "Integer",
    "Json",
    "JsonSchema",
    "Long",
    "OneColumn",
    "Protobuf",
    "Raw",
    "RegistryFormat",
    "Short",
    "String",
    "Uuid",
]

_KEPT_TABLE: Final = (
    "and tables find rows by key bytes. Read it with stream() and keep a table of it: "
    'builder.stream(...).groupBy("id").agg(F.last("name"))'
)


def _check_column(form: Any, given: str) -> None:
    if form.column is not None and (not isinstance(form.column, str) or not form.column):
        raise ValueError(f"{type(form).__name__}({given}): the column's name must be a non-empty string")


def _check_fields(form: Any) -> None:
    if isinstance(form.schema, str) and not form.schema.strip():
        name = type(form).__name__
        raise ValueError(f'{name}(""): name at least one field, such as {name}("user string, amount double")')


@dataclass(frozen=True, slots=True)
class OneColumn(Format):
    """A format that fills one column, and is written from one column of its type.

    Attributes:
        column: the column's name; None means ``key`` or ``value``, by the place where the format stands.
    """

    codec_module = "plain"
    key_refusal = None
    table_key_refusal: ClassVar[str | None] = None
    has_fixed_bytes = True

    column: str | None = None

    def __post_init__(self) -> None:
        _check_column(self, repr(self.column))

    def only_column(self, place: str) -> str:
        """Return the column's name for a place, ``"key"`` or ``"value"``."""
        return self.column or place


class _OtherKeyBytes(OneColumn):
    """Formats whose bytes are not those that such a column has as the key of a repartition topic."""

    __slots__ = ()

    table_key_refusal = f"repartition topics hold keys of its type in other bytes, {_KEPT_TABLE}"


@dataclass(frozen=True, slots=True)
class Raw(OneColumn):
    """Bytes as they are, a binary column."""


@dataclass(frozen=True, slots=True)
class String(OneColumn):
    """UTF-8 text, a string column: Kafka's StringSerializer.

    Usage::

        builder.stream("flights", key=String("carrier"), value=Json("origin string"))
    """

    key_type = str


@dataclass(frozen=True, slots=True)
class Integer(OneColumn):
    """Four bytes, big endian, an int column: Kafka's IntegerSerializer."""

    key_type = int


@dataclass(frozen=True, slots=True)
class Long(OneColumn):
    """Eight bytes, big endian, a bigint column: Kafka's LongSerializer."""

    key_type = int


@dataclass(frozen=True, slots=True)
class Short(_OtherKeyBytes):
    """Two bytes, big endian, a smallint column: Kafka's ShortSerializer."""


@dataclass(frozen=True, slots=True)
class Float(_OtherKeyBytes):
    """Four bytes, IEEE 754, big endian, a float column: Kafka's FloatSerializer."""


@dataclass(frozen=True, slots=True)
class Double(_OtherKeyBytes):
    """Eight bytes, IEEE 754, big endian, a double column: Kafka's DoubleSerializer."""


@dataclass(frozen=True, slots=True)
class Boolean(_OtherKeyBytes):
    """One byte, 0 or 1, a boolean column: Kafka's BooleanSerializer."""


@dataclass(frozen=True, slots=True)
class Uuid(OneColumn):
    """The text of a UUID, ``00112233-4455-6677-8899-aabbccddeeff``, a string column: Kafka's UUIDSerializer."""

    key_type = str


@dataclass(frozen=True, slots=True)
class Json(Format):
    """One JSON object a record.

    Null fields are not written, neither at the top nor in structs; nulls in arrays and maps are.

    Attributes:
        schema: a Spark DDL string, such as ``"user string, amount double"``, or a ``StructType``. Required for
            reading. Must be None for writing: the columns are written as they are.
        without_key: for writing: True to leave out the columns that are the message key.

    Usage::

        orders.groupBy("shop").agg(F.count("*").alias("n")).to("counts", value=Json(without_key=True))
    """

    codec_module = "json.codec"
    key_refusal = 'read it as String("key") and take it apart with F.from_json'
    table_key_refusal = key_refusal
    schema_is_for_reading = True
    column_check = "each"

    schema: Any = None
    without_key: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        _check_fields(self)
        if not isinstance(self.without_key, bool):
            raise TypeError(f"Json(without_key={self.without_key!r}) takes True or False")
        if self.without_key and self.schema is not None:
            raise ValueError(
                f"Json({self.schema!r}, without_key=True): a schema is for reading, and without_key for writing"
            )

    def leaves_out(self, key: Iterable[str]) -> frozenset[str]:
        """Return the key's columns, if they are to be left out."""
        return frozenset(key) if self.without_key else frozenset()


@dataclass(frozen=True, slots=True)
class Arrow(Format):
    """One Arrow IPC stream a record, uncompressed: what ``pyarrow.ipc.new_stream`` writes.

    ``Arrow(schema)`` has one row a record. ``Arrow(schema, column="rows")`` has any number, which are one column, an
    array of structs; ``F.explode`` turns it into rows. Fields are matched by name and cast if the cast is lossless;
    missing fields are null, additional ones are ignored.

    Attributes:
        schema: the fields: a Spark DDL string, such as ``"user string, amount double"``, a ``StructType`` or a
            ``pyarrow.Schema``. Required for reading. Must be None for writing: columns are written as they are.
        column: name of the column that holds a record's rows.

    Usage::

        builder.stream("orders", value=Arrow("user string, amount double")).to("copies", value=Arrow())
    """

    codec_module = "arrow_ipc"
    schema_is_for_reading = True

    schema: Any = None
    column: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _check_fields(self)
        _check_column(self, f"column={self.column!r}")
        if hasattr(self.schema, "remove_metadata"):
            object.__setattr__(self, "schema", self.schema.remove_metadata())

    def only_column(self, place: str) -> str | None:
        """Return the name of the column that holds a record's rows, if any."""
        del place
        return self.column


@dataclass(frozen=True, slots=True)
class RegistryFormat(Format):
    """A format whose schema may come from a schema registry. Use one of its subclasses.

    Attributes:
        schema: the schema as text, or as ``json.load`` returns it; None: the registry's (``schema.registry.url``) at
            the time an instance is created.
        subject: the schema's name in the registry; by default ``<topic>-value`` or ``<topic>-key``, or as
            ``value.subject.name.strategy`` says.
        version: version of the subject; None: the newest. Pin it if instances may restart one by one after a new
            version was registered: all of them need the same columns.
        framed: True if records begin with Confluent's five bytes; by default if the schema is the registry's.
        schema_id: the schema's number in the registry; set by the instance.
        writers: the schemas by which records were written; set by the instance.
    """

    #: The registry's name of this kind of schema.
    kind: ClassVar[str] = ""
    #: Whether reading a record needs the schema by which it was written.
    needs_writers: ClassVar[bool] = False
    key_refusal = None
    table_key_refusal = f"equal keys may have different bytes after a change of the schema, {_KEPT_TABLE}"
    column_check = "all"

    schema: Any = None
    subject: str | None = field(default=None, kw_only=True)
    version: int | None = field(default=None, kw_only=True)
    framed: bool | None = field(default=None, kw_only=True)
    schema_id: int | None = field(default=None, kw_only=True)
    writers: Any = field(default=None, kw_only=True, compare=False, repr=False)

    def __post_init__(self) -> None:
        name = type(self).__name__
        for what, given, kind in (("subject", self.subject, str), ("version", self.version, int)):
            if given is not None and (not isinstance(given, kind) or isinstance(given, bool) or not given):
                raise ValueError(f"{name}({what}={given!r}): it must be a non-empty {kind.__name__}")
        if self.schema is None:
            if self.framed is False:
                raise ValueError(
                    f"{name}(framed=False) needs a schema: records without the registry's bytes do not name theirs"
                )
            return
        if self.version is not None:
            raise ValueError(
                f"{name}(schema, version={self.version}): give one of them, the version's schema is the registry's"
            )
        if self.subject is not None and not self.is_framed:
            raise ValueError(f"{name}(schema, subject={self.subject!r}) names a registry's subject: add framed=True")
        given = json.dumps(self.schema) if isinstance(self.schema, Mapping | list) else self.schema
        if not isinstance(given, str) or not given.strip():
            raise ValueError(f"{name}({self.schema!r}): the schema must be text, or a dict")
        try:
            self._check(given)
            # Instances must agree on the schema, whatever its whitespace.
            text = json.dumps(json.loads(given), separators=(",", ":")) if given.strip()[0] in '{["' else given.strip()
        except SerializationException as error:
            raise ValueError(f"{name}(...): {error}") from error
        object.__setattr__(self, "schema", text)

    @property
    def is_framed(self) -> bool:
        """True if records begin with Confluent's five bytes."""
        return self.schema is None if self.framed is None else self.framed

    @property
    def registered_text(self) -> str:
        """The schema as the registry takes it."""
        return str(self.schema)

    @property
    def files(self) -> list[protobuf.ProtobufFile]:
        """The files of a schema of several: the schema's own last, each after those that it imports."""
        return []

    @property
    def type_name(self) -> str:
        """The name of the schema; empty until the schema is known."""
        raise NotImplementedError

    @property
    def is_record(self) -> bool:
        """True if the schema is a record's, whose fields are the columns."""
        return True

    def in_few_words(self) -> str:
        """Return the format with the schema's name."""
        return self.fingerprint if self.schema is None else f"{type(self).__name__}({self.type_name})"

    def known_columns(self, place: str) -> tuple[str, ...]:
        """Return the columns' names for a place, ``"key"`` or ``"value"``; none until the schema is known."""
        return () if self.schema is None else self._columns(place)

    def leaves_out(self, key: Iterable[str]) -> frozenset[str]:
        """Return the key's columns that are no fields of the schema."""
        return frozenset() if self.schema is None else frozenset(key).difference(self._columns("value"))

    def _columns(self, place: str) -> tuple[str, ...]:
        raise NotImplementedError

    def _check(self, text: str) -> None:
        """Raise SerializationException for a text that is not a schema."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Avro(RegistryFormat):
    """One Avro record a record.

    ``Avro(schema)`` is the binary form alone, as ``BinaryMessageEncoder`` writes it without a header. ``Avro()`` takes
    the newest schema of the topic from the registry (``schema.registry.url``) when an instance is created, and expects
    Confluent's five bytes in front of each record: KafkaAvroSerializer. Records that were written by other schemas are
    resolved to it by Avro's rules.

    A record's fields are the columns; a schema of another type is one column, ``key`` or ``value``. Columns have the
    types that Spark's ``from_avro`` gives them.

    Usage::

        orders = builder.stream("orders", key=String("user"), value=Avro())
        orders.where("amount > 100").to("large", value=Avro(open("order.avsc").read()))
    """

    codec_module = "avro.codec"
    kind = "AVRO"
    needs_writers = True
    has_fixed_bytes = True

    @property
    def type_name(self) -> str:
        """The name of the record, or of another type; empty until the schema is known."""
        return "" if self.schema is None else type_name(parse_schema(self.schema))

    @property
    def is_record(self) -> bool:
        """True if the schema is a record's, whose fields are the columns."""
        return isinstance(parse_schema(self.schema), AvroRecord)

    def _columns(self, place: str) -> tuple[str, ...]:
        kind = parse_schema(self.schema)
        return tuple(field.name for field in kind.fields) if isinstance(kind, AvroRecord) else (place,)

    def _check(self, text: str) -> None:
        parse_schema(text)


@dataclass(frozen=True, slots=True)
class JsonSchema(RegistryFormat):
    """One JSON object a record, after Confluent's five bytes: KafkaJsonSchemaSerializer.

    ``JsonSchema()`` takes the columns from the registry's JSON Schema; ``JsonSchema(schema)`` reads and writes by that
    one. Values are read like those of ``Json``, and not validated any further.

    Usage::

        builder.stream("orders", value=JsonSchema()).to("copies", value=JsonSchema())
    """

    codec_module = "json.registry_codec"
    kind = "JSON"

    @property
    def is_framed(self) -> bool:
        """True: records always begin with Confluent's five bytes."""
        return True

    @property
    def type_name(self) -> str:
        """The schema's title; empty until the schema is known."""
        return "" if self.schema is None else str(json.loads(self.schema).get("title", "object"))

    def _columns(self, place: str) -> tuple[str, ...]:
        del place
        return tuple(properties_of(self.schema))

    def _check(self, text: str) -> None:
        properties_of(text)


@dataclass(frozen=True, slots=True)
class Protobuf(RegistryFormat):
    """One Protobuf message a record; needs ``pip install 'sparkrelay[protobuf]'``.

    ``Protobuf(Order)`` with a class that ``protoc`` has generated is the message alone, as ``SerializeToString`` writes
    it. ``Protobuf()`` takes the message from the registry and expects Confluent's five bytes and the message's index in
    its file in front: KafkaProtobufSerializer. Columns have the types that Spark's ``from_protobuf`` gives them.

    Attributes:
        message: full name of the message, where ``schema`` is the bytes of a FileDescriptorSet, or where it is not the
            first one of the registry's file.

    Usage::

        from order_pb2 import Order
        builder.stream("orders", value=Protobuf(Order)).select("id").to("ids", value=Protobuf(descriptors, "shop.Id"))
    """

    codec_module = "protobuf.codec"
    kind = "PROTOBUF"

    message: str | None = None

    def __post_init__(self) -> None:
        if self.schema is not None:
            try:
                text, named = protobuf.as_text(self.schema)
                object.__setattr__(self, "schema", text)
                object.__setattr__(self, "message", protobuf.message_name(text, self.message or named))
            except SerializationException as error:
                raise ValueError(f"Protobuf(...): {error}") from error
        RegistryFormat.__post_init__(self)

    @property
    def registered_text(self) -> str:
        """The schema's own file."""
        return self.files[-1].text

    @property
    def files(self) -> list[protobuf.ProtobufFile]:
        """The files of the schema: its own last, each after those that it imports."""
        return protobuf.files_of(self.schema)

    @property
    def index(self) -> tuple[int, ...]:
        """The message's place in its file."""
        return tuple(protobuf.message_index(self.schema, str(self.message)))

    @property
    def type_name(self) -> str:
        """The message's full name; empty until it is known."""
        return self.message or ""

    def _columns(self, place: str) -> tuple[str, ...]:
        del place
        return protobuf.column_names(self.schema, str(self.message))

    def _check(self, text: str) -> None:
        protobuf.message_index(text, str(self.message))
