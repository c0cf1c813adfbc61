"""SQL scripts: whole pipelines as text, for ``StreamsBuilder.script`` and ``sparkrelay sql``.

::

    CREATE STREAM bids (auction BIGINT, price DOUBLE, at TIMESTAMP)
        USING sparkrelay OPTIONS (topic 'bids', key 'auction', watermark 'at 5 seconds');
    CREATE VIEW dear AS SELECT * FROM bids WHERE price > 100;
    INSERT INTO hot SELECT auction, count(*) AS bids FROM dear GROUP BY auction;

Spark's own parser reads the statements. A source is written down when the first query reads it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import StructField, StructType

from sparkrelay.catalyst.frames import with_children
from sparkrelay.catalyst.jvm import items
from sparkrelay.errors import TopologyException
from sparkrelay.records.formats import Avro, Integer, Json, JsonSchema, Long, Protobuf, Raw, String
from sparkrelay.topology.call_site import CallSite, written_at
from sparkrelay.topology.record import spark_errors
from sparkrelay.topology.schemas import without_kafka

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkrelay.records.format import Format

#: What a semicolon does not end a statement in.
_TOKEN: Final = re.compile(
    r"""'(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*" | `(?:[^`]|``)*` | --[^\n]* | /\*.*?\*/ | ;""",
    re.DOTALL | re.VERBOSE,
)
#: Comments and spaces in front of a statement.
_BLANK: Final = re.compile(r"(?:\s|--[^\n]*(?:\n|$)|/\*(?!\+).*?\*/)*", re.DOTALL)
_CREATE: Final = re.compile(r"CREATE\s+(?:OR\s+REPLACE\s+)?(?P<kind>STREAM|GLOBAL\s+TABLE|TABLE)\b", re.IGNORECASE)
_OPTIONS: Final = frozenset(
    {"history", "key", "outputmode", "schema", "starting", "timestamp", "topic", "value", "watermark", "without_key"}
)
_KEYS: Final = {"string": String, "int": Integer, "bigint": Long, "binary": Raw}
_VALUES: Final = {
    "avro": Avro,
    "json": Json,
    "jsonschema": JsonSchema,
    "protobuf": Protobuf,
    "raw": Raw,
    "string": String,
}
_WATERMARK: Final = re.compile(r"(?P<column>\S+)\s+(?:delay\s+(?:of\s+)?)?(?P<delay>.+)", re.IGNORECASE | re.DOTALL)
_KNOWN: Final = "CREATE STREAM, CREATE TABLE, CREATE GLOBAL TABLE, CREATE VIEW, INSERT INTO and SET"


@dataclass(frozen=True, slots=True)
class _Declared:
    """A stream or a table, which may be read or written.

    Attributes:
        kind: ``STREAM``, ``TABLE`` or ``GLOBAL TABLE``.
        name: as it was written.
        columns: those that were named.
        options: by name in lower case.
        call_site: the statement.
    """

    kind: str
    name: str
    columns: StructType
    options: dict[str, str]
    call_site: CallSite

    @property
    def topic(self) -> str:
        return self.options.get("topic", self.name)


class SqlScript:
    """Runs the statements of one script.

    Args:
        builder: the ``StreamsBuilder`` that they are written with.
        file: the script's name, for messages, and the folder in which schemas are found.
    """

    def __init__(self, builder: Any, file: str) -> None:
        self._builder = builder
        self._file = file
        self._parser = builder._record.spark._jsparkSession.sessionState().sqlParser()
        self._declared: dict[str, _Declared] = {}
        #: What ``SET`` has set, but for Spark's own settings.
        self.settings: dict[str, str] = {}

    def run(self, text: str) -> None:
        """Write down what the statements say.

        Raises:
            TopologyException: Spark does not understand one, or it cannot be done; names its line.
        """
        for statement, line in split(text):
            call_site = CallSite(self._file, line, "<sql>")
            with written_at(call_site):
                self._run(statement, call_site)

    def _run(self, text: str, call_site: CallSite) -> None:
        created = _CREATE.match(text)
        kind = "" if created is None else re.sub(r"\s+", " ", created["kind"]).upper()
        parsed = text if created is None else f"{text[: created.start('kind')]}TABLE{text[created.end('kind') :]}"
        with spark_errors(call_site):
            plan = self._parser.parsePlan(parsed)
        match str(plan.getClass().getSimpleName()):
            case "CreateTable":
                self._declare(plan, kind, call_site)
            case "CreateView" | "CreateViewCommand" as form:
                name = plan.name().table() if form == "CreateViewCommand" else _last(plan.child().nameParts())
                query = plan.plan() if form == "CreateViewCommand" else plan.query()
                self._view(str(name), query, text, call_site)
            case "InsertIntoStatement":
                self._insert(plan, plan.query(), text, call_site)
            case "UnresolvedWith" if str(plan.child().getClass().getSimpleName()) == "InsertIntoStatement":
                self._insert(plan.child(), with_children(plan, [plan.child().query()]), text, call_site)
            case "SetCommand" if plan.kv().isDefined() and plan.kv().get()._2().isDefined():
                self._set(str(plan.kv().get()._1()), str(plan.kv().get()._2().get()))
            case other:
                raise TopologyException(
                    f"{call_site}: a script takes {_KNOWN}, not {other}; a query alone leads nowhere: write "
                    "INSERT INTO topic in front of it"
                )

    # -- declarations ---------------------------------------------------------------------------------------------

    def _declare(self, plan: Any, kind: str, call_site: CallSite) -> None:
        name, spec = _last(plan.name().nameParts()), plan.tableSpec()
        provider = str(spec.provider().get()).lower() if spec.provider().isDefined() else "sparkrelay"
        if provider != "sparkrelay":
            raise TopologyException(f"{call_site}: {name} is USING {provider}; streams and tables are USING sparkrelay")
        if name.lower() in self._declared:
            first = self._declared[name.lower()].call_site
            raise TopologyException(f"{call_site}: {name} is declared already, at {first}")
        if items(plan.partitioning()) or int(spec.properties().size()) or spec.location().isDefined():
            raise TopologyException(f"{call_site}: {name} is a topic: it has no partitioning, properties or location")
        options = {str(one._1()).lower(): str(one._2().eval(None)) for one in items(spec.optionExpression().options())}
        unknown = sorted(options.keys() - _OPTIONS)
        if unknown:
            known = ", ".join(sorted(_OPTIONS))
            raise TopologyException(f"{call_site}: {name} has no option {unknown[0]!r}; OPTIONS are {known}")
        columns = StructType(
            [
                StructField(str(one.name()), StructType.fromJson(_field(one))["column"].dataType)
                for one in items(plan.columns())
            ]
        )
        self._declared[name.lower()] = _Declared(kind, name, columns, options, call_site)

    def _source(self, one: _Declared) -> None:
        """Write a declared stream or table down, and have queries call it by its name."""
        options, builder = one.options, self._builder
        key = self._key(one)
        formats: dict[str, Any] = {"key": key, "value": self._value(one, key)}
        if one.kind != "STREAM" and None in formats.values():
            raise TopologyException(
                f"{one.call_site}: the table {one.name} needs columns, or a value, and a key: OPTIONS (key 'column')"
            )
        starting = options.get("starting")
        if starting is not None and one.kind == "GLOBAL TABLE":
            raise TopologyException(f"{one.call_site}: the global table {one.name} has no starting: all of it is read")
        with written_at(one.call_site):
            made: Any
            if one.kind == "STREAM":
                made = builder.stream(one.topic, **formats, timestamp=options.get("timestamp"), starting=starting)
                if "watermark" in options:
                    found = _WATERMARK.fullmatch(options["watermark"].strip())
                    if found is None:
                        raise TopologyException(
                            f"{one.call_site}: watermark {options['watermark']!r} of {one.name} must be a column and a "
                            "delay, such as 'at 5 seconds'"
                        )
                    made = made.withWatermark(found["column"], found["delay"])
            elif one.kind == "TABLE":
                formats |= {"timestamp": options.get("timestamp"), "history": options.get("history")}
                made = builder.table(one.topic, **formats, starting=starting)
            else:
                made = builder.global_table(one.topic, **formats, timestamp=options.get("timestamp"))
        builder._record.views[one.name] = made._rows

    def _key(self, one: _Declared) -> Format | None:
        """Return the format of the message key: a column, and its type where no column says it."""
        if "key" not in one.options:
            return None
        name, _, written = one.options["key"].strip().partition(" ")
        kind = written.strip().lower()
        if not kind:
            found = next((field for field in one.columns if field.name.lower() == name.lower()), None)
            kind = "string" if found is None else found.dataType.simpleString()
        if kind not in _KEYS:
            known = ", ".join(_KEYS)
            raise TopologyException(f"{one.call_site}: key {name!r} of {one.name} is {kind}; keys are {known}")
        return _KEYS[kind](name)

    def _value(self, one: _Declared, key: Format | None) -> Format | None:
        """Return the format of the message value; None for a stream of Kafka's own columns."""
        given = one.options.get("value", "json" if one.columns.fields else "").lower().replace("-", "").replace("_", "")
        if not given:
            return None
        if given not in _VALUES:
            known = ", ".join(sorted(_VALUES))
            raise TopologyException(f"{one.call_site}: value {given!r} of {one.name} must be one of {known}")
        form: Any = _VALUES[given]
        made: Format
        taken = () if key is None else tuple(name.lower() for name in key.known_columns("key"))
        columns = StructType([field for field in one.columns if field.name.lower() not in taken])
        if form in {Raw, String}:
            made = form(columns.names[0] if columns.names else "value")
        elif form is Json:
            made = Json(columns)
        else:
            made = form() if "schema" not in one.options else form(self._schema(one))
        return made

    def _schema(self, one: _Declared) -> str:
        given = one.options["schema"].strip()
        if given.startswith(("{", "[", '"')):
            return given
        path = Path(self._file).parent / given
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise TopologyException(
                f"{one.call_site}: schema {given!r} of {one.name} cannot be read: {error}"
            ) from error

    # -- queries --------------------------------------------------------------------------------------------------

    def _query(self, plan: Any, text: str, call_site: CallSite) -> Any:
        del call_site
        for name in set(re.findall(r"UnresolvedRelation \[([^\],]*)\]", str(plan.toString()))):
            declared = self._declared.get(name.strip("`").lower())
            if declared is not None and declared.name not in self._builder._record.views:
                self._source(declared)
        return self._builder._read_sql(text, plan)

    def _view(self, name: str, query: Any, text: str, call_site: CallSite) -> None:
        self._query(query, text, call_site).createOrReplaceTempView(name)

    def _insert(self, plan: Any, query: Any, text: str, call_site: CallSite) -> None:
        if plan.overwrite():
            raise TopologyException(f"{call_site}: a topic cannot be overwritten: write INSERT INTO")
        name = _last(plan.table().multipartIdentifier())
        rows = self._query(query, text, call_site)
        if "kafka" in rows.columns and "kafka" not in without_kafka(rows.schema).names:
            # As "*" has it; what is written has none of Kafka's own.
            rows = rows.drop("kafka")
        target = self._declared.get(name.lower())
        columns = None if target is None or not target.columns.fields else target.columns
        names = [str(one) for one in items(plan.userSpecifiedCols())] or (columns.names if columns is not None else [])
        if names and not plan.byName():
            if len(names) != len(rows.columns):
                given = ", ".join(rows.columns)
                raise TopologyException(
                    f"{call_site}: INSERT INTO {name} gives {len(rows.columns)} columns, {given}, for {len(names)}, "
                    f"{', '.join(names)}"
                )
            rows = rows.toDF(*names)
        if columns is not None:
            rows = rows.to(columns)
        if target is None:
            rows.to(name)
            return
        if "outputmode" in target.options:
            rows = rows.outputMode(target.options["outputmode"])
        key = self._key(target)
        value, without = target.options.get("value", "json").lower(), target.options.get("without_key", "false").lower()
        if without not in {"false", "true"} or (without == "true" and value != "json"):
            raise TopologyException(
                f"{target.call_site}: without_key {without!r} of {target.name} must be true or false, and is for value "
                "'json': other values have the fields of their schema"
            )
        form = self._value(target, key) if value != "json" else Json(without_key=without == "true")
        rows.to(target.topic, key=key, value=form)

    def _set(self, key: str, value: str) -> None:
        if key.startswith("spark."):
            self._builder._record.spark.conf.set(key, value)
        else:
            self.settings[key] = value


def split(text: str) -> Iterator[tuple[str, int]]:
    """Yield the statements of a script, each with the line on which it begins."""
    begin = 0
    ends = [found.start() for found in _TOKEN.finditer(text) if found[0] == ";"]
    for end in (*ends, len(text)):
        blank = _BLANK.match(text, begin, end)
        first = begin if blank is None else blank.end()
        if (statement := text[first:end].rstrip()) != "":
            yield statement, text.count("\n", 0, first) + 1
        begin = end + 1


def _field(one: Any) -> dict[str, Any]:
    """Return a declared column as the JSON of a struct with a field ``column``."""
    kind = json.loads(str(one.dataType().json()))
    return {"type": "struct", "fields": [{"name": "column", "type": kind, "nullable": True, "metadata": {}}]}


def _last(parts: Any) -> str:
    return str(items(parts)[-1])
