"""The registry's schemas of a topology's formats, looked up once when an instance is made.

Building a topology asks nobody, but Spark cannot check the steps without columns. So an instance, or the test driver,
asks the registry, on the driver. Workers get the schemas in their commands and never ask; an unknown id comes back as
:class:`UnknownSchemaException`, and the batch runs again with its schema.
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
from sparkrelay.topology import Subtopology, Topology

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkrelay.client.schema_registry import RegisteredSchema
    from sparkrelay.config import StreamsConfig
    from sparkrelay.topology import Leg
    from sparkrelay.topology.call_site import CallSite

log = logging.getLogger(__name__)


def with_registered_schemas(topology: Topology, config: StreamsConfig) -> Topology:
    """Return a topology with the registry's schemas in its formats.

    Raises:
        ConfigException: a format needs the registry, and ``schema.registry.url`` is not set.
        SchemaRegistryException: the registry does not answer.
        TopologyException: it lacks a schema.
    """
    legs = (*topology.legs, *topology.global_tables)
    forms = [form for leg in legs for form in _formats(leg)]
    if not any(map(_is_framed, forms)):
        return topology
    if not config.schema_registry_url:
        raise ConfigException(
            "a format takes its schema from a registry, Avro(), but schema.registry.url is not set; set it, or give "
            "the schema: Avro(open('order.avsc').read()) for records without Confluent's five-byte prefix"
        )
    resolver = _Resolver(config)
    return Topology(
        (Subtopology(part.id, tuple(map(resolver.leg, part.legs))) for part in topology.subtopologies),
        tuple(map(resolver.leg, topology.global_tables)),
    )


def _is_framed(form: Any) -> TypeGuard[RegistryFormat]:
    return isinstance(form, RegistryFormat) and form.is_framed


def _formats(leg: Leg) -> list[Any]:
    sink = [] if leg.sink is None else [leg.sink.key, leg.sink.value]
    return [leg.source.key, leg.source.value, *sink]


class _Resolver:
    """Requests each schema once: several legs may read one topic."""

    def __init__(self, config: StreamsConfig) -> None:
        self._config = config
        self._registry = SchemaRegistry(config)
        self._found: dict[Any, RegistryFormat] = {}

    def leg(self, leg: Leg) -> Leg:
        """Return a leg with its formats resolved."""
        source, sink, places = leg.source, leg.sink, ("key", "value")
        if not source.internal:
            read = {at: self._read(getattr(source, at), source.topics, at, source.call_site) for at in places}
            leg = replace(leg, source=replace(source, **read))
        if sink is not None and not sink.internal:
            written = {at: self._written(getattr(sink, at), sink.topic, at, sink.call_site) for at in places}
            leg = replace(leg, sink=replace(sink, **written))
        return leg

    def _read(self, form: Any, topics: Sequence[str], place: str, call_site: CallSite) -> Any:
        if not _is_framed(form):
            return form
        key = ("read", form, tuple(topics), place)
        if key not in self._found:
            subjects = list(dict.fromkeys(self._subject(form, topic, place, call_site) for topic in topics))
            schema, number = form.schema, None
            if schema is None:
                chosen = [self._one(form, subject, call_site) for subject in subjects]
                if len({_whole(one, call_site) for one in chosen}) > 1:
                    raise TopologyException(
                        f"{call_site}: {' and '.join(subjects)} have different schemas in the registry, and a stream "
                        "has one set of columns; give the reader schema: Avro(schema, framed=True)"
                    )
                schema, number = _whole(chosen[0], call_site), chosen[0].id
            # JSON and Protobuf records need no writer schema.
            writers = self._writers(subjects, call_site) if form.needs_writers else None
            self._found[key] = _made(form, schema, number, writers, call_site)
        return self._found[key]

    def _written(self, form: Any, topic: str, place: str, call_site: CallSite) -> Any:
        if not _is_framed(form):
            return form
        key = ("written", form, topic, place)
        if key not in self._found:
            subject = self._subject(form, topic, place, call_site)
            if form.schema is None:
                chosen = self._one(form, subject, call_site)
                schema, number = _whole(chosen, call_site), chosen.id
            else:
                schema, number = form.schema, self._number(form, subject, call_site)
            # For the test driver, which reads the records.
            writers = WriterSchemas({number: schema})
            self._found[key] = _made(form, schema, number, writers, call_site)
        return self._found[key]

    def _writers(self, subjects: Sequence[str], call_site: CallSite) -> WriterSchemas:
        versions = (one for subject in subjects for one in self._registry.versions(subject))
        # Earlier versions of a subject may be of another kind; their records are bad ones.
        return WriterSchemas({one.id: _whole(one, call_site) for one in versions if one.kind == "AVRO"}, self._ask)

    def _ask(self, number: int) -> str | None:
        try:
            found = self._registry.by_id(number)
            text = None if found is None or found.kind != "AVRO" else found.whole
        except (UnusableSchemaException, SerializationException) as error:
            # Not an error: anybody who may register a schema and write a record could end every instance.
            log.warning("the registry's schema %d cannot be used, so its records do not decode: %s", number, error)
            text = None
        return text

    def _number(self, form: RegistryFormat, subject: str, call_site: CallSite) -> int:
        references = self._imported(form, call_site)
        number = self._registry.lookup(subject, form.registered_text, form.kind, references)
        if number is None and form.kind != "PROTOBUF":
            # Apicurio compares the text, spaces included.
            number = next((one.id for one in self._registry.versions(subject) if _is_same(one, form)), None)
        if number is None and self._config.auto_register_schemas:
            return self._registry.register(subject, form.registered_text, form.kind, references)
        if number is None:
            raise TopologyException(
                f"{call_site}: the registry does not have this schema under subject {subject!r}; register it, or set "
                "auto.register.schemas=true, or write by the newest registered one: "
                f"{type(form).__name__}()"
            )
        return number

    def _imported(self, form: RegistryFormat, call_site: CallSite) -> list[Reference]:
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
                    f"{call_site}: the registry does not have {name!r}, which the schema imports, under the subject of "
                    "that name; register it, or set auto.register.schemas=true"
                )
            found[name] = Reference(name, name, version)
        return [found[one] for file in files[-1:] for one in file.imports if one in found]

    def _one(self, form: RegistryFormat, subject: str, call_site: CallSite) -> RegisteredSchema:
        version = "latest" if form.version is None else form.version
        found = self._registry.version(subject, version, form.kind)
        if found is None:
            raise TopologyException(
                f"{call_site}: the registry has no subject {subject!r}, or no version {version} of it; register the "
                "schema, name another subject, Avro(subject=...), or give the schema, Avro(schema)"
            )
        if found.kind != form.kind:
            raise TopologyException(
                f"{call_site}: subject {subject!r} has a schema of kind {found.kind}, not {form.kind}"
            )
        return found

    def _subject(self, form: RegistryFormat, topic: str, place: str, call_site: CallSite) -> str:
        if form.subject is not None:
            return form.subject
        config = self._config
        given = config.key_subject_name_strategy if place == "key" else config.value_subject_name_strategy
        strategy = given.rpartition(".")[2]
        if strategy == "TopicNameStrategy":
            return f"{topic}-{place}"
        if form.schema is None:
            raise TopologyException(
                f"{call_site}: {place}.subject.name.strategy={strategy} needs a record's name, which "
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


def _whole(found: RegisteredSchema, call_site: CallSite) -> str:
    try:
        return found.whole
    except SerializationException as error:
        raise SchemaRegistryException(f"{call_site}: the registry's schema cannot be used: {error}") from error


def _made(
    form: RegistryFormat, schema: str, number: int | None, writers: WriterSchemas | None, call_site: CallSite
) -> RegistryFormat:
    try:
        return replace(form, schema=schema, version=None, framed=True, schema_id=number, writers=writers)
    except (ValueError, SerializationException) as error:
        raise SchemaRegistryException(f"{call_site}: the registry's schema cannot be used: {error}") from error
