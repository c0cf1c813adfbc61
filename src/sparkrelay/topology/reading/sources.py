"""Sources: topics, and what their formats make of the records."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.catalyst.frames import analyzed, as_attribute, attributes
from sparkrelay.catalyst.jvm import items
from sparkrelay.client.topic_schemas import is_framed
from sparkrelay.errors import TopologyException
from sparkrelay.records.custom_format import CustomFormat
from sparkrelay.records.format import Format
from sparkrelay.topology.naming import check_name, check_topic
from sparkrelay.topology.nodes import SourceNode
from sparkrelay.topology.record import begin, projected
from sparkrelay.topology.source_columns import source_columns
from sparkrelay.topology.spread import Spread
from sparkrelay.topology.starts import spark_starting, topic_starts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkrelay.catalyst.tree import Plan
    from sparkrelay.topology.call_site import CallSite
    from sparkrelay.topology.reading.calls import Call
    from sparkrelay.topology.record import Record
    from sparkrelay.topology.rows import Rows

log = logging.getLogger(__name__)

#: The option of a ``readStream`` that a setting of an instance says, too.
_BROKERS: Final = "kafka.bootstrap.servers"
#: Options, in lower case, that have an effect here.
_TAKEN: Final = frozenset(
    {_BROKERS, "subscribe", "includeheaders", "startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp"}
)


def source(  # noqa: PLR0917 - as they are written
    record: Record,
    method: str,
    topics: Any,
    key: Any,
    value: Any,
    timestamp: Any,
    name: Any,
    call_site: CallSite,
    starting: Any = None,
    brokers: str | None = None,
) -> Rows:
    """Write a source down; return its rows.

    Args:
        record: of the builder.
        method: what was called.
        topics: as of :meth:`StreamsBuilder.stream`, and so are the others.
        key: likewise.
        value: likewise.
        timestamp: likewise.
        name: likewise.
        call_site: the line that wrote it.
        starting: likewise.
        brokers: those that a ``readStream`` names.

    Raises:
        TopologyException: an argument is missing or of the wrong kind.
    """
    topics = _topics(topics, call_site)
    node = SourceNode(
        call_site=call_site,
        text=f"{method}(...)",
        topics=topics,
        key=_with_schema(record, _key_format(method, key, call_site), topics, "key", call_site),
        value=_with_schema(record, _value_format(method, value, call_site), topics, "value", call_site),
        timestamp=_timestamp(method, timestamp, key, value, call_site),
        name=check_name(name, call_site),
        brokers=brokers,
        starts=topic_starts(starting, topics, f"{call_site}: starting={starting!r} of {method}()"),
    )
    columns = source_columns(node)
    whole = None if node.key is None or node.key.table_key_refusal is not None else node.key.known_columns("key")[0]
    spread = Spread.of_source(columns.names, whole, raw=node.key is None and node.value is None)
    return begin(record.add(node, attributes(columns), spread))


def relation_rows(record: Record, call: Call, at: Plan) -> Rows:
    """Return the rows of ``spark.readStream.format("sparkrelay")``, with the numbers of its columns.

    Args:
        record: of the builder.
        call: that handed them over.
        at: the relation.

    Raises:
        TopologyException: it is of another format, or an option is not possible here.
    """
    where = call.where
    name = str(at.java.sourceName())
    if name != "sparkrelay":
        raise TopologyException(
            f'{where}: a stream of format {name!r} is read by Spark itself; read it with format("sparkrelay"), which '
            "takes the options of Spark's Kafka source"
        )
    options = {str(key).lower(): str(value) for key, value in at.java.extraOptions().asCaseSensitiveMap().items()}
    key = tuple(sorted(options.items()))
    if key not in record.relations:
        topics = [topic.strip() for topic in options["subscribe"].split(",") if topic.strip()]
        idle = sorted(name for name in options if name not in _TAKEN)
        if idle:
            log.warning("%s: the options %s have no effect: the instance's settings say that", where, ", ".join(idle))
        record.relations[key] = source(
            record,
            "stream",
            topics,
            None,
            None,
            None,
            None,
            call.call_site,
            spark_starting(options, topics, str(where)),
            options.get(_BROKERS),
        )
    rows = record.relations[key]
    known = {column.name: place for place, column in enumerate(rows.columns)}
    output = analyzed(rows.frame).output()
    made = [as_attribute(output.apply(known[str(one.name())]), one) for one in items(at.java.output())]
    return projected(rows, made, unsaid=1)


def _with_schema(record: Record, form: Format | None, topics: Sequence[str], place: str, call_site: CallSite) -> Any:
    """Return a format with its schema: the registry's, where it has none of its own."""
    if not is_framed(form) or form.schema is not None:
        return form
    return record.schemas.read(form, topics, place, str(call_site))


def _topics(topics: Any, call_site: CallSite) -> tuple[str, ...]:
    listed = [topics] if isinstance(topics, str) else topics
    if not isinstance(listed, list | tuple | set | frozenset) or not listed:
        raise TopologyException(f"{call_site}: stream() takes a topic or a list of topics, not {topics!r}")
    checked = tuple(check_topic(topic, call_site) for topic in listed)
    if len(set(checked)) < len(checked):
        raise TopologyException(f"{call_site}: stream({list(checked)}) names a topic twice")
    return tuple(sorted(checked)) if isinstance(listed, set | frozenset) else checked


def _key_format(method: str, key: Any, call_site: CallSite) -> Format | None:
    form = _format(method, "key", key, call_site)
    refusal = None if form is None else form.key_refusal if method == "stream" else form.table_key_refusal
    if refusal is not None:
        raise TopologyException(
            f"{call_site}: key={type(form).__name__}(...) of {method}() is not supported: {refusal}"
        )
    return form


def _value_format(method: str, value: Any, call_site: CallSite) -> Format | None:
    form = _format(method, "value", value, call_site)
    if form is not None and form.schema_is_for_reading and form.schema is None:
        kind = type(form).__name__
        raise TopologyException(
            f'{call_site}: value={kind}() of {method}() needs a schema, such as {kind}("user string, amount double")'
        )
    return form


def _format(method: str, place: str, form: Any, call_site: CallSite) -> Format | None:
    if form is None:
        return None
    if isinstance(form, Format):
        if isinstance(form, CustomFormat) and " at 0x" in form.fingerprint:
            raise TopologyException(
                f"{call_site}: {place}={form.fingerprint} of {method}() holds an object whose text is not stable, and "
                f"the instances of an application must agree on their formats; give {type(form).__name__} a property "
                "fingerprint"
            )
        return form
    hint = " (an instance, with parentheses)" if isinstance(form, type) else ""
    raise TopologyException(
        f"{call_site}: {place}= of {method}() takes a format such as String(), Json(schema), Avro(schema) or "
        f"Raw(){hint}, not {form!r}"
    )


def _timestamp(method: str, timestamp: Any, key: Any, value: Any, call_site: CallSite) -> str | None:
    if timestamp is None:
        return None
    if not isinstance(timestamp, str) or not timestamp:
        raise TopologyException(f"{call_site}: timestamp= of {method}() takes a column's name, not {timestamp!r}")
    if key is None and value is None:
        raise TopologyException(
            f"{call_site}: timestamp={timestamp!r} names a decoded column, but {method}() has neither key= nor value="
        )
    return timestamp
