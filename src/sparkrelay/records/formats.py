"""How a topic's keys and values are written: descriptions only, so that importing them loads nothing heavy.

A format says what the bytes are. Which Arrow code reads or writes them is decided where records flow (``typed``,
``json.writer``, ``keys``); which Spark type a schema means is decided by the runtime, which alone knows Spark.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from sparkrelay.errors import SerializationException
from sparkrelay.records.avro.schema import AvroRecord, parse_schema, type_name
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


class Format:
    """What the bytes of keys or of values are. Use one of its subclasses."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class OneColumn(Format):
    """A format that fills one column, and is written from one column of its type.

    Attributes:
        column: the column's name; None means ``key`` or ``value``, by the place where the format stands.
    """

    column: str | None = None

    def __post_init__(self) -> None:
        if self.column is not None and (not isinstance(self.column, str) or not self.column):
            raise ValueError(f"{type(self).__name__}({self.column!r}): the column's name must be a non-empty string")

    def column_name(self, place: str) -> str:
        """Return the column's name for a place, ``"key"`` or ``"value"``."""
        return self.column or place


@dataclass(frozen=True, slots=True)
class Raw(OneColumn):
    """Bytes as they are, a binary column."""


@dataclass(frozen=True, slots=True)
class String(OneColumn):
    """UTF-8 text, a string column: Kafka's StringSerializer.

    Usage::

        builder.stream("flights", key=String("carrier"), value=Json("origin string"))
    """


@dataclass(frozen=True, slots=True)
class Integer(OneColumn):
    """Four bytes, big endian, an int column: Kafka's IntegerSerializer."""


@dataclass(frozen=True, slots=True)
class Long(OneColumn):
    """Eight bytes, big endian, a bigint column: Kafka's LongSerializer."""


@dataclass(frozen=True, slots=True)
class Short(OneColumn):
    """Two bytes, big endian, a smallint column: Kafka's ShortSerializer."""


@dataclass(frozen=True, slots=True)
class Float(OneColumn):
    """Four bytes, IEEE 754, big endian, a float column: Kafka's FloatSerializer."""


@dataclass(frozen=True, slots=True)
class Double(OneColumn):
    """Eight bytes, IEEE 754, big endian, a double column: Kafka's DoubleSerializer."""


@dataclass(frozen=True, slots=True)
class Boolean(OneColumn):
    """One byte, 0 or 1, a boolean column: Kafka's BooleanSerializer."""


@dataclass(frozen=True, slots=True)
class Uuid(OneColumn):
    """The text of a UUID, ``00112233-4455-6677-8899-aabbccddeeff``, a string column: Kafka's UUIDSerializer."""


@dataclass(frozen=True, slots=True)
class Json(Format):
    """One JSON object a record.

    Null fields are not written, neither at the top nor in structs; nulls in arrays and maps are.

    Attributes:
        schema: a Spark DDL string, such as ``"user string, amount double"``, or a ``StructType``. Needed for reading.
            For writing it must be None: the columns are written as they are.
    """

    schema: Any = None

    def __post_init__(self) -> None:
        if isinstance(self.schema, str) and not self.schema.strip():
            raise ValueError('Json(""): name at least one field, such as Json("user string, amount double")')


@dataclass(frozen=True, slots=True)
class Arrow(Format):
    """One Arrow IPC stream a record, uncompressed: what ``pyarrow.ipc.new_stream`` writes.

    ``Arrow(schema)`` has one row a record. ``Arrow(schema, column="rows")`` has any number, which are one column, an
    array of structs; ``F.explode`` makes rows of it. Fields are found by their names and cast where nothing is lost; a
    field that a record does not have is null, others are left out.

    Attributes:
        schema: the fields: a Spark DDL string, such as ``"user string, amount double"``, a ``StructType`` or a
            ``pyarrow.Schema``. Needed for reading; for writing it must be None: columns are written as they are.
        column: name of the column that holds a record's rows.

    Usage::

        builder.stream("orders", value=Arrow("user string, amount double")).to("copies", value=Arrow())
    """

    schema: Any = None
    column: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if isinstance(self.schema, str) and not self.schema.strip():
            raise ValueError('Arrow(""): name at least one field, such as Arrow("user string, amount double")')
        if self.column is not None and (not isinstance(self.column, str) or not self.column):
            raise ValueError(f"Arrow(column={self.column!r}): the column's name must be a non-empty string")
        if hasattr(self.schema, "remove_metadata"):
            object.__setattr__(self, "schema", self.schema.remove_metadata())


@dataclass(frozen=True, slots=True)
class RegistryFormat(Format):
    """A format whose schema may be a schema registry's. Use one of its subclasses.

    Attributes:
        schema: the schema as text, or as what ``json.load`` makes of it; None: the registry's
            (``schema.registry.url``), as it is when an instance is made.
        subject: under which name the registry has the schema; by default ``<topic>-value`` or ``<topic>-key``, or what
            ``value.subject.name.strategy`` says.
        version: of the subject, where it is not to be the newest one: all instances of an application must have the
            same columns, also one that is restarted alone after a version was added.
        framed: True where records have Confluent's five bytes in front; by default where the schema is the registry's.
        schema_id: its number in the registry; found out by the instance.
        writers: the schemas that records were written by; found out by the instance.
    """

    #: What the registry calls schemas of this kind.
    kind: ClassVar[str] = ""

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
                raise ValueError(f"{name}({what}={given!r}): it must be a {kind.__name__} that is not empty")
        if self.schema is None:
            if self.framed is False:
                raise ValueError(
                    f"{name}(framed=False) needs a schema: without the registry's bytes nothing says which"
                )
            return
        if self.version is not None:
            raise ValueError(
                f"{name}(schema, version={self.version}): give one of them, the registry has the version's"
            )
        if self.subject is not None and not self.is_framed:
            raise ValueError(f"{name}(schema, subject={self.subject!r}) says where a registry has it: add framed=True")
        given = json.dumps(self.schema) if isinstance(self.schema, Mapping | list) else self.schema
        if not isinstance(given, str) or not given.strip():
            raise ValueError(f"{name}({self.schema!r}): the schema must be text, or a dict")
        try:
            self._check(given)
            # Blank space says nothing, and instances must agree on the schema.
            text = json.dumps(json.loads(given), separators=(",", ":")) if given.strip()[0] in '{["' else given.strip()
        except SerializationException as error:
            raise ValueError(f"{name}(...): {error}") from error
        object.__setattr__(self, "schema", text)

    @property
    def is_framed(self) -> bool:
        """True where Confluent's five bytes are in front of a record."""
        return self.schema is None if self.framed is None else self.framed

    @property
    def registered_text(self) -> str:
        """The schema as the registry takes it."""
        return str(self.schema)

    @property
    def type_name(self) -> str:
        """What the schema is called; empty while it is not known."""
        raise NotImplementedError

    @property
    def is_record(self) -> bool:
        """True if the schema is a record's, whose fields are the columns."""
        raise NotImplementedError

    def column_names(self, place: str) -> tuple[str, ...]:
        """Return the columns' names for a place, ``"key"`` or ``"value"``; none while the schema is not known."""
        raise NotImplementedError

    def _check(self, text: str) -> None:
        """Raise SerializationException for a text that is no schema."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Avro(RegistryFormat):
    """One Avro record a record.

    ``Avro(schema)`` is the binary form alone, as ``BinaryMessageEncoder`` without a header writes it. ``Avro()`` takes
    the newest schema of the topic from the registry (``schema.registry.url``) when an instance is made, and expects
    Confluent's five bytes in front of each record: KafkaAvroSerializer. Records that were written by other schemas are
    resolved to it by Avro's rules.

    A record's fields are the columns; a schema of another type is one column, ``key`` or ``value``. Columns have the
    types that Spark's ``from_avro`` gives them.

    Usage::

        orders = builder.stream("orders", key=String("user"), value=Avro())
        orders.where("amount > 100").to("large", value=Avro(open("order.avsc").read()))
    """

    kind: ClassVar[str] = "AVRO"

    @property
    def type_name(self) -> str:
        """What the schema is called: a record by its name; empty while it is not known."""
        return "" if self.schema is None else type_name(parse_schema(self.schema))

    @property
    def is_record(self) -> bool:
        """True if the schema is a record's, whose fields are the columns."""
        return isinstance(parse_schema(self.schema), AvroRecord)

    def column_names(self, place: str) -> tuple[str, ...]:
        """Return the columns' names for a place, ``"key"`` or ``"value"``; none while the schema is not known."""
        if self.schema is None:
            return ()
        kind = parse_schema(self.schema)
        return tuple(field.name for field in kind.fields) if isinstance(kind, AvroRecord) else (place,)

    def _check(self, text: str) -> None:
        parse_schema(text)


@dataclass(frozen=True, slots=True)
class JsonSchema(RegistryFormat):
    """One JSON object a record, behind Confluent's five bytes: KafkaJsonSchemaSerializer.

    ``JsonSchema()`` takes the columns from the registry's JSON Schema; ``JsonSchema(schema)`` reads and writes by that
    one. Values are read as those of ``Json``, and not validated any further.

    Usage::

        builder.stream("orders", value=JsonSchema()).to("copies", value=JsonSchema())
    """

    kind: ClassVar[str] = "JSON"

    @property
    def is_framed(self) -> bool:
        """True where Confluent's five bytes are in front of a record: always."""
        return True

    @property
    def type_name(self) -> str:
        """What the schema is called: by its title; empty while it is not known."""
        return "" if self.schema is None else str(json.loads(self.schema).get("title", "object"))

    @property
    def is_record(self) -> bool:
        """True: the schema is an object's, whose properties are the columns."""
        return True

    def column_names(self, place: str) -> tuple[str, ...]:
        """Return the columns' names; none while the schema is not known."""
        del place
        return () if self.schema is None else tuple(properties_of(self.schema))

    def _check(self, text: str) -> None:
        properties_of(text)


@dataclass(frozen=True, slots=True)
class Protobuf(RegistryFormat):
    """One Protobuf message a record; needs ``pip install 'sparkrelay[protobuf]'``.

    ``Protobuf(Order)`` with a class that ``protoc`` has generated is the message alone, as ``SerializeToString`` writes
    it. ``Protobuf()`` takes the message from the registry and expects Confluent's five bytes and the message's place in
    its file in front: KafkaProtobufSerializer. Columns have the types that Spark's ``from_protobuf`` gives them.

    Attributes:
        message: full name of the message, where ``schema`` is the bytes of a FileDescriptorSet, or where it is not the
            first one of the registry's file.

    Usage::

        from order_pb2 import Order
        builder.stream("orders", value=Protobuf(Order)).select("id").to("ids", value=Protobuf(descriptors, "shop.Id"))
    """

    kind: ClassVar[str] = "PROTOBUF"

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
        """The schema as the registry takes it."""
        return self.files[-1].text

    @property
    def files(self) -> list[protobuf.ProtobufFile]:
        """The schema's own file, last, and those that it imports, each behind what it imports itself."""
        return protobuf.files_of(self.schema)

    @property
    def index(self) -> tuple[int, ...]:
        """Where in its file the message is."""
        return tuple(protobuf.message_index(self.schema, str(self.message)))

    @property
    def type_name(self) -> str:
        """The message's full name; empty while it is not known."""
        return self.message or ""

    @property
    def is_record(self) -> bool:
        """True: the message's fields are the columns."""
        return True

    def column_names(self, place: str) -> tuple[str, ...]:
        """Return the columns' names; none while the schema is not known."""
        del place
        return () if self.schema is None else protobuf.column_names(self.schema, str(self.message))

    def _check(self, text: str) -> None:
        protobuf.message_index(text, str(self.message))
