"""Every setting of an instance: dotted key, type, default, range, unit, one line.

Keys and defaults are Kafka Streams' own where it has them, so that its documentation applies; settings that only
SparkRelay has say so. Settings for the clients underneath carry the prefixes ``consumer.``, ``producer.`` and
``admin.``; security keys are spelt as in librdkafka and need no prefix.

Unknown keys are refused, naming the nearest known one: a misspelt ``num.standby.replicas`` must not silently mean
"no standbys".
"""

from __future__ import annotations

import dataclasses
import re
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Self

from sparkrelay.errors import ConfigException
from sparkrelay.settings import (
    DECOMPRESSED_BATCH_BYTES,
    INT64_MAX,
    Foreign,
    MaskedSettings,
    check,
    host_and_port,
    read,
    setting,
    settings_of,
    shortly,
    shown,
)
from sparkrelay.types import is_topic_name

__all__ = [
    "CONTINUE",
    "FAIL",
    "HIDDEN",
    "MOST_TAGS",
    "PREFIXES",
    "SECURITY_PREFIXES",
    "SUBJECT_NAME_STRATEGIES",
    "StreamsConfig",
    "check_application_id",
    "check_client_tags",
]

#: How the keys of security begin. They are passed on to every connection as they are; ``client.config`` knows them.
SECURITY_PREFIXES: Final = (
    "security.",
    "sasl.",
    "ssl.",
    "https.ca.",
    "oauth_cb",
    "enable.ssl.certificate.verification",
)
#: What stands for a secret where settings are displayed.
HIDDEN: Final = "[hidden]"
_PUBLIC_SECURITY: Final = frozenset(
    {
        "security.protocol",
        "sasl.mechanism",
        "sasl.mechanisms",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.endpoint.identification.algorithm",
        "enable.ssl.certificate.verification",
        "https.ca.location",
    }
)
#: Fields of settings that have a prefix, which is left out in them.
PREFIXES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "client.tag.": "client_tags",
        "consumer.": "consumer",
        "producer.": "producer",
        "admin.": "admin",
        "task.assignor.": "task_assignor",
    }
)
#: Kafka's limits, so that a subscription stays small.
MOST_TAGS: Final = 5
_LONGEST_TAG_KEY, _LONGEST_TAG_VALUE = 20, 30
#: What an exception handler may answer.
FAIL: Final = "fail"
CONTINUE: Final = "log-and-continue"
_APPLICATION_ID = re.compile(r"[A-Za-z0-9._-]{1,200}")
#: The value of ``topology.optimization`` that has tables use the topic that they are read from as their changelog.
REUSE_SOURCE_TOPICS: Final = "reuse.ktable.source.topics"
#: How the name that a registry knows a schema by is made.
SUBJECT_NAME_STRATEGIES: Final = ("TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy")
#: Kafka Streams' other ones.
_OTHER_OPTIMIZATIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "merge.repartition.topics": "one repartition(...) with several ways behind it is one topic",
        "single.store.self.join": "both sides of a join keep one store",
    }
)
_FOREIGN: Final[Mapping[str, Foreign]] = MappingProxyType(
    {"internal.task.assignor.class": Foreign("it is Kafka's internal one; use 'task.assignor.class' instead")}
)


def check_application_id(value: str) -> None:
    """Raise ValueError if that cannot be an ``application.id``."""
    if not _APPLICATION_ID.fullmatch(value) or value in {".", ".."}:
        raise ValueError("use 1 to 200 letters, digits, '.', '_' or '-': it becomes part of topic and directory names")


def check_client_tags(tags: Mapping[str, object]) -> None:
    """Check tags as KIP-708 bounds them.

    Raises:
        ValueError: there are too many, one is no string or too long, or one is reserved.
    """
    _check_tag_names(tuple(tags))
    for key, text in tags.items():
        if not isinstance(text, str):
            raise ValueError(f"client.tag.{key}={text!r} is not a valid string")  # noqa: TRY004 - a setting's value
        if key.startswith("sparkrelay."):
            raise ValueError(f"tags sparkrelay.* are SparkRelay's own; call {key!r} something else")
        if len(key) > _LONGEST_TAG_KEY or len(text) > _LONGEST_TAG_VALUE:
            raise ValueError(
                f"tag {key!r}={text!r} is too long: a key has at most {_LONGEST_TAG_KEY} characters, a value "
                f"{_LONGEST_TAG_VALUE}"
            )


def _check_tag_names(names: tuple[str, ...]) -> None:
    if len(names) > MOST_TAGS:
        raise ValueError(f"at most {MOST_TAGS} tags are allowed")


class _Hidden:
    """Stands for a value that must not be shown."""


def _displayed(key: str, value: object) -> str:
    name = key
    for prefix in PREFIXES:
        name = name.removeprefix(prefix)
    secret = name.startswith(SECURITY_PREFIXES) and name not in _PUBLIC_SECURITY
    if value is _Hidden or secret or shown(key, value).endswith("=(hidden)"):
        return HIDDEN
    return value if isinstance(value, str) else shortly(value)


def _check_servers(value: str) -> None:
    for server in value.split(","):
        host_and_port(server.strip())


def _check_not_empty(value: str) -> None:
    if not value:
        raise ValueError("it must not be empty; leave it out for the default")


def _check_path(value: str) -> None:
    _check_not_empty(value)
    if "\0" in value:
        raise ValueError("no path has a zero byte")


def _check_topic_name(value: str) -> None:
    if not is_topic_name(value):
        raise ValueError("a topic's name has 1 to 249 letters, digits, '.', '_' or '-'")


def _check_registry(value: str) -> None:
    for url in value.split(","):
        parts = urllib.parse.urlsplit(url.strip())
        if not all(" " < sign < "\x7f" for sign in url.strip()):
            raise ValueError("give http://HOST:PORT, or https://, in ASCII and without spaces")
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
            raise ValueError("give http://HOST:PORT, or https://")
        if parts.username or parts.password:
            raise ValueError("credentials in it would be shown; set basic.auth.user.info instead")
        try:
            has_port = parts.port != 0
        except ValueError:
            has_port = False
        if not has_port:
            raise ValueError("give http://HOST:PORT, or https://, with a port of 1 to 65535")


def _check_user_info(value: str) -> None:
    if ":" not in value or not value.isascii() or not value.isprintable():
        raise ValueError("give USER:PASSWORD")


def _check_strategy(value: str) -> None:
    # Java's clients name classes, io.confluent.kafka.serializers.subject.RecordNameStrategy.
    if value.rpartition(".")[2] not in SUBJECT_NAME_STRATEGIES:
        raise ValueError(f"use one of {', '.join(SUBJECT_NAME_STRATEGIES)}")


def _check_optimization(value: str) -> None:
    known = ("none", "all", REUSE_SOURCE_TOPICS)
    if value in known:
        return
    words = [
        f"{name} has nothing to do here, as {_OTHER_OPTIMIZATIONS[name]}"
        for name in map(str.strip, value.split(","))
        if name in _OTHER_OPTIMIZATIONS
    ]
    raise ValueError("; ".join([*words, f"use one of {', '.join(known)}"]))


def _check_token(value: str) -> None:
    if not (value.isascii() and value.isprintable() and " " not in value):
        raise ValueError("it travels in a header of HTTP: use ASCII letters, digits and signs, without spaces")


def _check_replication_factor(value: int) -> None:
    if value == 0:
        raise ValueError("give 1 or more, or -1 for the broker's default")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsConfig:
    """The settings of one instance, checked. Field names are the dotted keys with underscores.

    Attributes:
        client_tags: what has the prefix ``client.tag.``, without it.
        consumer: what goes to the group member, without its prefix.
        producer: what goes to workers' connections, without its prefix.
        admin: what goes to connections for questions and transactions, without its prefix.
        task_assignor: settings of the task assignor's own, without the prefix ``task.assignor.``.
        security: what goes to every connection, as it is.
    """

    # Identity and place
    application_id: str = setting(
        dataclasses.MISSING, "names the group, the state directory, internal topics", check=check_application_id
    )
    bootstrap_servers: str = setting(dataclasses.MISSING, "HOST:PORT[,HOST:PORT...]", check=_check_servers)
    client_id: str = setting("", "prefix of client ids; default: application.id and a process id")
    group_instance_id: str | None = setting(
        None,
        "a name of this instance that its restart has again: back within session.timeout.ms, it finds its "
        "tasks without a rebalance; its threads are told apart by -1, -2, ...",
    )
    state_dir: str | None = setting(
        None,
        "where local state lives; default: sparkrelay in the user's state folder, $XDG_STATE_HOME or ~/.local/state",
        check=_check_path,
    )
    application_server: str = setting(
        "",
        "HOST:PORT at which this instance answers queries of its stores; the group's other instances learn of it",
        check=host_and_port,
    )
    client_rack: str = setting("", "rack of this instance; SPARKRELAY_CLIENT_RACK in a machine's environment wins")
    client_tags: Mapping[str, str] = dataclasses.field(default_factory=dict)

    # Work
    num_stream_threads: int = setting(1, "stream threads per process", least=1, most=64)
    max_batch_records: int = setting(
        500_000, "records a task may take into one micro-batch (SparkRelay's own)", least=1, most=INT64_MAX
    )
    max_batch_bytes: int = setting(
        128 << 20,
        "bytes that the records of a micro-batch may take, as fetched and decoded; one record may be larger "
        "(SparkRelay's own)",
        least=1 << 20,
        most=INT64_MAX,
    )
    max_decompressed_batch_bytes: int = setting(
        DECOMPRESSED_BATCH_BYTES,
        "most that one record batch may hold decompressed, bytes; a larger one ends the instance (SparkRelay's own)",
        least=1_024,
    )
    poll_ms: int = setting(
        500,
        "longest time that brokers hold back the request that waits for new input, ms; they answer at once when "
        "something comes",
        least=1,
        most=60_000,
    )
    commit_interval_ms: int = setting(
        0, "shortest time from one micro-batch to the next, ms; 0: as soon as there is input", most=60_000
    )
    batch_cpu_percent: int = setting(
        50,
        "percent of one core that a stream thread's small micro-batches may take; less of it spaces them out "
        "(SparkRelay's own)",
        least=1,
        most=6_400,
    )
    event_time_after_max_ms: int = setting(
        3_600_000,
        "how far ahead of this machine's clock an event time may be to move a watermark, ms; a row of a later one "
        "counts for its window alone, or in a table with a history for its key (SparkRelay's own)",
        most=INT64_MAX,
    )
    max_task_idle_ms: int = setting(
        0,
        "where a grouping with a watermark reads several topics, how long one that is read to its end holds the "
        "watermark back after its last row, ms; 0: not at all",
        most=INT64_MAX,
    )
    join_idle_ms: int = setting(
        60_000,
        "how long a join of streams waits for one that is read to its end and silent, before its watermark goes on "
        "without it, ms (SparkRelay's own)",
        most=INT64_MAX,
    )
    watermark_idle_ms: int = setting(
        0,
        "after how long without input a task's watermarks go on by the clock, so that its last windows end, ms; 0: "
        "never. Longer than a takeover lasts (SparkRelay's own)",
        most=INT64_MAX,
    )
    max_batch_retries: int = setting(2, "times a failed micro-batch is run again (SparkRelay's own)", most=100)
    deserialization_exception_handler: str = setting(
        FAIL, "what to do with a record that does not decode", choices=(FAIL, CONTINUE)
    )
    processing_exception_handler: str = setting(
        FAIL,
        "what to do with a record that makes a step of the pipeline fail, such as a Python function (KIP-1033)",
        choices=(FAIL, CONTINUE),
    )
    production_exception_handler: str = setting(
        FAIL,
        "what to do with a record of which something comes that cannot be written, such as one that is too large",
        choices=(FAIL, CONTINUE),
    )
    errors_dead_letter_queue_topic_name: str | None = setting(
        None,
        "topic that records go to which are left out by one of the exception handlers (KIP-1034); default: they are "
        "only logged",
        check=_check_topic_name,
    )
    schema_registry_url: str = setting(
        "",
        "http://HOST:PORT[,...] of the schema registry for Avro() and the like; asked by the driver alone",
        check=_check_registry,
    )
    basic_auth_user_info: str = setting(
        "", "USER:PASSWORD for the schema registry", secret=True, check=_check_user_info
    )
    basic_auth_credentials_source: str = setting(
        "USER_INFO", "accepted, without effect: basic.auth.user.info it is", choices=("USER_INFO",)
    )
    schema_registry_ssl_ca_location: str = setting(
        "",
        "file with the certificates that the registry's is checked by, PEM; default: the system's",
        check=_check_path,
    )
    auto_register_schemas: bool = setting(
        False, "whether Avro(schema, framed=True) of to() is registered, if it is not (Confluent: true)"
    )
    key_subject_name_strategy: str = setting(
        "TopicNameStrategy",
        "under which name the registry knows the schemas of keys: TopicNameStrategy, RecordNameStrategy, "
        "TopicRecordNameStrategy",
        check=_check_strategy,
    )
    value_subject_name_strategy: str = setting("TopicNameStrategy", "the same of values", check=_check_strategy)
    topology_optimization: str = setting(
        "none",
        "reuse.ktable.source.topics, or all: a table that is read from a topic has that as its changelog, and no copy",
        check=_check_optimization,
    )
    processing_guarantee: str = setting(
        "exactly_once_v2",
        "accepted, without effect: exactly once either way",
        choices=("exactly_once_v2", "at_least_once"),
    )

    # State and availability (KIP-441)
    num_standby_replicas: int = setting(0, "standbys per stateful task", most=100)
    max_warmup_replicas: int = setting(2, "warm-ups in the whole group at once", least=1)
    acceptable_recovery_lag: int = setting(
        10_000, "lag, in offsets, at which a task counts as caught up", most=INT64_MAX
    )
    probing_rebalance_interval_ms: int = setting(
        600_000, "longest wait until warm-ups are looked at, ms", least=60_000, most=INT64_MAX
    )
    follow_up_when_caught_up: bool = setting(
        True, "ask for the follow-up as soon as a warm-up is warm (SparkRelay's own)"
    )
    follow_up_min_interval_ms: int = setting(
        10_000,
        "what the pause before such a follow-up grows to, ms: at most 1 s at first, twice as long with "
        "each that comes soon after (SparkRelay's own)",
        most=INT64_MAX,
    )
    task_assignor_class: Any = setting(None, "class, import path or file.py:Class (KIP-924)")
    rack_aware_assignment_strategy: str = setting(
        "none",
        "whether tasks are exchanged so that fewer partitions are read across racks (KIP-925)",
        choices=("none", "min_traffic", "balance_subtopology"),
    )
    rack_aware_assignment_traffic_cost: int | None = setting(
        None,
        "cost of one partition read across racks; default: the assignor's own",
        key="rack.aware.assignment.traffic_cost",
    )
    rack_aware_assignment_non_overlap_cost: int | None = setting(
        None, "cost of moving one task; default: the assignor's own", key="rack.aware.assignment.non_overlap_cost"
    )
    rack_aware_assignment_tags: tuple[str, ...] = setting(
        (), "client tags over whose values standbys are spread, up to 5 (KIP-708)", check=_check_tag_names
    )
    state_cleanup_delay_ms: int = setting(
        600_000, "local copies of tasks that moved away are removed after this, ms", most=INT64_MAX
    )
    store_max_bytes: int = setting(
        64 << 30, "bound on one task's local state, bytes (SparkRelay's own)", least=1 << 20, most=INT64_MAX
    )

    # Group membership and transactions
    auto_offset_reset: str = setting(
        "earliest", "where a task without any position starts", choices=("earliest", "latest")
    )
    on_data_loss: str = setting(
        "fail",
        "what tasks do whose next records were deleted unread: end with an error, or continue at the first one that is "
        "left (SparkRelay's own)",
        choices=("fail", "continue"),
    )
    session_timeout_ms: int = setting(45_000, "a silent instance counts as dead after this, ms", least=1_000)
    heartbeat_interval_ms: int = setting(500, "members learn of a rebalance within this, ms (Kafka: 3000)", least=50)
    max_poll_interval_ms: int = setting(
        300_000,
        "bound on a rebalance, ms; a micro-batch that holds one up for half of it is cancelled and undone",
        least=1_000,
    )
    transaction_timeout_ms: int = setting(60_000, "the broker aborts a transaction open longer, ms", least=1_000)
    replication_factor: int = setting(
        -1,
        "copies of each internal topic; -1: the broker's default",
        least=-1,
        most=(1 << 15) - 1,
        check=_check_replication_factor,
    )
    executor_wait_timeout_ms: int = setting(
        300_000,
        "on a Spark cluster, an instance without any executor for this long ends in ERROR, ms (SparkRelay's own)",
        least=1_000,
        most=INT64_MAX,
    )
    request_timeout_ms: int = setting(30_000, "bound on one request, ms", least=100)
    default_api_timeout_ms: int = setting(60_000, "bound on one operation, ms", least=100)

    # What the operator sees
    metrics_port: int = setting(
        0, "port of the instance's live page, /metrics, /health and /ready; 0: none (SparkRelay's own)", most=65_535
    )
    metrics_host: str = setting(
        "127.0.0.1", "address to serve them at; 0.0.0.0: all of this machine (SparkRelay's own)", check=_check_not_empty
    )

    metrics_server: str = setting(
        "",
        "HOST:PORT at which the group's other instances find this one's page; default: metrics.host, or where that is "
        "all of this machine its address towards the brokers, and metrics.port (SparkRelay's own)",
        check=host_and_port,
    )

    # Interactive queries
    queries_enabled: bool = setting(
        True,
        "whether this instance listens at application.server; false: a server of your own does (SparkRelay's own)",
    )
    queries_host: str = setting(
        "", "address to listen at for queries; default: the host of application.server (SparkRelay's own)"
    )
    queries_token: str = setting(
        "",
        "what who asks must send, as Authorization: Bearer; the same for all instances. Needed beyond this machine "
        "(SparkRelay's own)",
        secret=True,
        check=_check_token,
    )
    queries_max_rows: int = setting(
        10_000, "rows that one answer of many rows has at most (SparkRelay's own)", least=1, most=1_000_000
    )
    queries_max_requests: int = setting(
        16, "queries answered at a time; more wait for a second, then get 503 (SparkRelay's own)", least=1, most=1_000
    )
    queries_timeout_ms: int = setting(
        5_000, "how long another instance may take to answer, ms (SparkRelay's own)", least=10, most=50_000
    )

    # What goes to the clients underneath
    consumer: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    producer: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    admin: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    task_assignor: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    security: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.max_task_idle_ms == -1:
            raise ConfigException(
                "max.task.idle.ms=-1 has Kafka Streams take records in any order, also where a topic has older ones "
                "that were not read yet: here these would come too late for their windows. Leave it at 0: then a topic "
                "that is read to its end holds no watermark back"
            )
        check(self)
        try:
            check_client_tags(self.client_tags)
        except ValueError as error:
            raise ConfigException(str(error)) from None
        if self.heartbeat_interval_ms * 3 > self.session_timeout_ms:
            raise ConfigException(
                f"heartbeat.interval.ms ({self.heartbeat_interval_ms}) must be at most a third of session.timeout.ms "
                f"({self.session_timeout_ms}), or one lost heartbeat expires the member"
            )
        if self.errors_dead_letter_queue_topic_name is not None and not self.skips_records:
            raise ConfigException(
                "errors.dead.letter.queue.topic.name is set, but nothing would be written to "
                f"{self.errors_dead_letter_queue_topic_name!r}: the exception handlers all fail. Set "
                f"deserialization.exception.handler={CONTINUE}, processing.exception.handler={CONTINUE} or "
                f"production.exception.handler={CONTINUE}"
            )
        for name in (*PREFIXES.values(), "security"):
            object.__setattr__(self, name, MappingProxyType(MaskedSettings(getattr(self, name))))

    @property
    def skips_records(self) -> bool:
        """True if an exception handler has the pipeline go on without a record."""
        return CONTINUE in {
            self.deserialization_exception_handler,
            self.processing_exception_handler,
            self.production_exception_handler,
        }

    @property
    def reuses_source_topics(self) -> bool:
        """True where tables use the topic that they are read from as their changelog."""
        return self.topology_optimization in {"all", REUSE_SOURCE_TOPICS}

    def displayed(self) -> dict[str, str]:
        """Return each setting as text, by key, for a page that others see: what may be a secret is ``[hidden]``.

        Of the keys of security only those of :data:`_PUBLIC_SECURITY` are shown.
        """
        fields = {item.name: item for item in dataclasses.fields(self)}
        values: dict[str, object] = {
            declared.key: getattr(self, name) if fields[name].repr else _Hidden
            for name, declared in settings_of(type(self)).items()
        }
        for prefix, name in PREFIXES.items():
            values |= {f"{prefix}{key}": value for key, value in getattr(self, name).items()}
        return {key: _displayed(key, value) for key, value in {**values, **self.security}.items() if value is not None}

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        """Check ``settings`` (dotted keys) and fill in the defaults.

        Raises:
            ConfigException: a key is unknown, missing, malformed or out of range; the message names it.
        """
        if not isinstance(settings, Mapping):
            raise ConfigException(
                f"settings are a dictionary such as {{'application.id': 'delays', 'bootstrap.servers': "
                f"'localhost:9092'}}, not a {type(settings).__name__}"
            )
        own: dict[str, Any] = {}
        known = {declared.key for declared in settings_of(cls).values()}
        groups: dict[str, Any] = {name: {} for name in (*PREFIXES.values(), "security")}
        for key, value in settings.items():
            text = key if isinstance(key, str) else ""
            prefix = next((p for p in PREFIXES if text.startswith(p) and text not in {p, *known}), None)
            if prefix is not None:
                groups[PREFIXES[prefix]][text.removeprefix(prefix)] = value
            elif text.startswith(SECURITY_PREFIXES):
                groups["security"][key] = value
            else:
                own[key] = value
        values, _ = read(cls, own, what="an instance", foreign=_FOREIGN)
        return cls(**values | groups)
