"""The registry's schemas of formats: which one a topic is read or written by.

Asked on the driver alone: when a pipeline is written, for the columns of ``Avro()``, and when an instance is made.
Workers get the schemas in their commands and never ask; an unknown id comes back as :class:`UnknownSchemaException`,
and the batch runs again with its schema.
"""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeGuard

from sparkrelay.client.schema_registry import Reference, SchemaRegistry, UnusableSchemaException
from sparkrelay.errors import ConfigException, SchemaRegistryException, SerializationException, TopologyException
from sparkrelay.records.formats import RegistryFormat
from sparkrelay.records.framing import WriterSchemas

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkrelay.client.schema_registry import RegisteredSchema
    from sparkrelay.config import StreamsConfig

log = logging.getLogger(__name__)


def is_framed(form: Any) -> TypeGuard[RegistryFormat]:
    """Return whether a format's records begin with the number of a schema."""
    return isinstance(form, RegistryFormat) and form.is_framed


class TopicSchemas:
    """Requests each schema once: several legs may read one topic.

    Args:
        config: the settings of the registry.
        remedy: what to do if they lack it.

    Raises:
        ConfigException: ``schema.registry.url`` is not set.
    """

    def __init__(self, config: StreamsConfig | None, remedy: str = "set it") -> None:
        if config is None or not config.schema_registry_url:
            raise ConfigException(
                f"a format takes its schema from a registry, Avro(), but schema.registry.url is not set; {remedy}, or "
                "give the schema: Avro(open('order.avsc').read()) for records without Confluent's five-byte prefix"
            )
        self._config = config
        self._registry = SchemaRegistry(config)
        self._found: dict[Any, RegistryFormat] = {}

    def read(self, form: Any, topics: Sequence[str], place: str, where: str) -> Any:
        """Return a format with what is needed to read these topics by it; one without a registry as it is.

        Args:
            form: of the keys or values.
            topics: Kafka's names.
            place: ``"key"`` or ``"value"``.
            where: the user's line.

        Raises:
            SchemaRegistryException: the registry does not answer.
            TopologyException: it lacks a schema.
        """
        if not is_framed(form):
            return form
        key = ("read", form, tuple(topics), place)
        if key not in self._found:
            subjects = list(dict.fromkeys(self._subject(form, topic, place, where) for topic in topics))
            schema, number = form.schema, form.schema_id
            if schema is None:
                chosen = [self._one(form, subject, where) for subject in subjects]
                if len({_whole(one, where) for one in chosen}) > 1:
                    raise TopologyException(
                        f"{where}: {' and '.join(subjects)} have different schemas in the registry, and a stream "
                        "has one set of columns; give the reader schema: Avro(schema, framed=True)"
                    )
                schema, number = _whole(chosen[0], where), chosen[0].id
            # JSON and Protobuf records need no writer schema.
            writers = self._writers(subjects, where) if form.needs_writers else None
            self._found[key] = _made(form, schema, number, writers, where)
        return self._found[key]

    def written(self, form: Any, topic: str, place: str, where: str) -> Any:
        """Return a format with the schema that a topic is written by; one without a registry as it is.

        Raises:
            SchemaRegistryException: the registry does not answer.
            TopologyException: it lacks the schema.
        """
        if not is_framed(form):
            return form
        key = ("written", form, topic, place)
        if key not in self._found:
            subject = self._subject(form, topic, place, where)
            if form.schema is None:
                chosen = self._one(form, subject, where)
                schema, number = _whole(chosen, where), chosen.id
            else:
                schema, number = form.schema, self._number(form, subject, where)
            # For the test driver, which reads the records.
            writers = WriterSchemas({number: schema})
            self._found[key] = _made(form, schema, number, writers, where)
        return self._found[key]

    def _writers(self, subjects: Sequence[str], where: str) -> WriterSchemas:
        versions = (one for subject in subjects for one in self._registry.versions(subject))
        # Earlier versions of a subject may be of another kind; their records are bad ones.
        return WriterSchemas({one.id: _whole(one, where) for one in versions if one.kind == "AVRO"}, self._ask)

    def _ask(self, number: int) -> str | None:
        try:
            found = self._registry.by_id(number)
            text = None if found is None or found.kind != "AVRO" else found.whole
        except (UnusableSchemaException, SerializationException) as error:
            # Not an error: anybody who may register a schema and write a record could end every instance.
            log.warning("the registry's schema %d cannot be used, so its records do not decode: %s", number, error)
            text = None
        return text

    def _number(self, form: RegistryFormat, subject: str, where: str) -> int:
        references = self._imported(form, where)
        number = self._registry.lookup(subject, form.registered_text, form.kind, references)
        if number is None and form.kind != "PROTOBUF":
            # Apicurio compares the text, spaces included.
            number = next((one.id for one in self._registry.versions(subject) if _is_same(one, form)), None)
        if number is None and self._config.auto_register_schemas:
            return self._registry.register(subject, form.registered_text, form.kind, references)
        if number is None:
            raise TopologyException(
                f"{where}: the registry does not have this schema under subject {subject!r}; register it, or set "
                "auto.register.schemas=true, or write by the newest registered one: "
                f"{type(form).__name__}()"
            )
        return number

    def _imported(self, form: RegistryFormat, where: str) -> list[Reference]:
        """Return references to the files that a schema imports, under their names as Confluent's serializer does."""
        found: dict[str, Reference] = {}
        files = form.files
        for name, text, imports in files[:-1]:
            further = [found[one] for one in imports if one in found]
            version = self._registry.version_of(name, text, form.kind, further)
            if version is None and self._config.auto_register_schemas:
                self._registry.register(name, text, form.kind, further)
                version = self._registry.version_of(name, text, form.kind, further)
            if version is None:
                raise TopologyException(
                    f"{where}: the registry does not have {name!r}, which the schema imports, under the subject of "
                    "that name; register it, or set auto.register.schemas=true"
                )
            found[name] = Reference(name, name, version)
        return [found[one] for file in files[-1:] for one in file.imports if one in found]

    def _one(self, form: RegistryFormat, subject: str, where: str) -> RegisteredSchema:
        version = "latest" if form.version is None else form.version
        found = self._registry.version(subject, version, form.kind)
        if found is None:
            raise TopologyException(
                f"{where}: the registry has no subject {subject!r}, or no version {version} of it; register the "
                "schema, name another subject, Avro(subject=...), or give the schema, Avro(schema)"
            )
        if found.kind != form.kind:
            raise TopologyException(f"{where}: subject {subject!r} has a schema of kind {found.kind}, not {form.kind}")
        return found

    def _subject(self, form: RegistryFormat, topic: str, place: str, where: str) -> str:
        if form.subject is not None:
            return form.subject
        config = self._config
        given = config.key_subject_name_strategy if place == "key" else config.value_subject_name_strategy
        strategy = given.rpartition(".")[2]
        if strategy == "TopicNameStrategy":
            return f"{topic}-{place}"
        if form.schema is None:
            raise TopologyException(
                f"{where}: {place}.subject.name.strategy={strategy} needs a record's name, which "
                f"{type(form).__name__}() does not have; give the schema, or the subject, "
                f"{type(form).__name__}(subject=...)"
            )
        return form.type_name if strategy == "RecordNameStrategy" else f"{topic}-{form.type_name}"


def _is_same(found: RegisteredSchema, form: RegistryFormat) -> bool:
    try:
        same = json.loads(found.text) == json.loads(form.registered_text)
        return bool(same) and found.kind == form.kind and not found.referred
    except (ValueError, RecursionError):
        return False


def _whole(found: RegisteredSchema, where: str) -> str:
    try:
        return found.whole
    except SerializationException as error:
        raise SchemaRegistryException(f"{where}: the registry's schema cannot be used: {error}") from error


def _made(
    form: RegistryFormat, schema: str, number: int | None, writers: WriterSchemas | None, where: str
) -> RegistryFormat:
    try:
        return replace(form, schema=schema, version=None, framed=True, schema_id=number, writers=writers)
    except (ValueError, SerializationException) as error:
        raise SchemaRegistryException(f"{where}: the registry's schema cannot be used: {error}") from error
