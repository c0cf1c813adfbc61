"""Every setting of an instance: dotted key, type, default, range, unit and one line of meaning.

Keys and defaults are Kafka Streams' own where it has them, so that its documentation applies; settings that only
SparkRelay has say so. Settings of the clients underneath have the prefixes ``consumer.``, ``producer.`` and ``admin.``;
security keys are spelt as in librdkafka and have no prefix.

Unknown keys are refused, with the nearest known one: a misspelt ``num.standby.replicas`` must not silently mean "no
standbys".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Self

from sparkrelay import config_checks
from sparkrelay.config_checks import (
    MOST_TAGS,
    REUSE_SOURCE_TOPICS,
    SUBJECT_NAME_STRATEGIES,
    check_application_id,
    check_client_tags,
)
from sparkrelay.errors import ConfigException
from sparkrelay.settings import (
    DECOMPRESSED_BATCH_BYTES,
    INT64_MAX,
    Foreign,
    MaskedSettings,
    check,
    host_and_port,
    is_secret,
    read,
    setting,
    settings_of,
    shortly,
)

__all__ = [
    "CONTINUE",
    "FAIL",
    "FOREIGN",
    "HIDDEN",
    "MOST_TAGS",
    "PREFIXES",
    "REUSE_SOURCE_TOPICS",
    "SECURITY_PREFIXES",
    "SUBJECT_NAME_STRATEGIES",
    "StreamsConfig",
    "check_application_id",
    "check_client_tags",
]

#: Prefixes of security keys, which go to every connection unchanged; ``client.config`` knows them.
SECURITY_PREFIXES: Final = (
    "security.",
    "sasl.",
    "ssl.",
    "https.ca.",
    "oauth_cb",
    "enable.ssl.certificate.verification",
)
#: Displayed in place of a secret.
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
#: Prefix -> field of the settings with that prefix, which are kept without it.
PREFIXES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "client.tag.": "client_tags",
        "consumer.": "consumer",
        "producer.": "producer",
        "admin.": "admin",
        "task.assignor.": "task_assignor",
    }
)
#: Answers of an exception handler.
FAIL: Final = "fail"
CONTINUE: Final = "log-and-continue"
#: Settings of Kafka Streams and the schema registry's client that have no effect here.
FOREIGN: Final[Mapping[str, Foreign]] = MappingProxyType(
    {
        "processing.guarantee": Foreign(
            "every instance is exactly once; leave it out", ("exactly_once_v2", "at_least_once")
        ),
        "basic.auth.credentials.source": Foreign("credentials are those of basic.auth.user.info", ("user_info",)),
        "internal.task.assignor.class": Foreign("it is Kafka's internal one; use 'task.assignor.class' instead"),
    }
)


class _Hidden:
    """Stands for a value that must not be shown."""


def _displayed(key: str, value: object) -> str:
    name = key
    for prefix in PREFIXES:
        name = name.removeprefix(prefix)
    secret = name.startswith(SECURITY_PREFIXES) and name not in _PUBLIC_SECURITY
    if value is _Hidden or secret or is_secret(key, value):
        return HIDDEN
    return value if isinstance(value, str) else shortly(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsConfig:
    """The settings of one instance, checked. Field names are the dotted keys with underscores.

    Attributes:
        client_tags: settings with the prefix ``client.tag.``, without it.
        consumer: settings of the group member, without their prefix.
        producer: settings of workers' connections, without their prefix.
        admin: settings of connections for requests and transactions, without their prefix.
        task_assignor: the task assignor's own settings, without the prefix ``task.assignor.``.
        security: settings of every connection, unchanged.
    """

    # Identity
    application_id: str = setting(
        dataclasses.MISSING, "names the group, the state directory, internal topics", check=check_application_id
    )
    bootstrap_servers: str = setting(dataclasses.MISSING, "HOST:PORT[,HOST:PORT...]", check=config_checks.servers)
    client_id: str = setting("", "prefix of client ids; default: application.id and a process id")
    group_instance_id: str | None = setting(
        None,
        "stable name of this instance (static membership): if it restarts within session.timeout.ms, it keeps its "
        "tasks without a rebalance; its threads are suffixed -1, -2, ...",
    )
    state_dir: str | None = setting(
        None,
        "where local state lives; default: sparkrelay in the user's state folder, $XDG_STATE_HOME or ~/.local/state",
        check=config_checks.path,
    )
    application_server: str = setting(
        "",
        "HOST:PORT at which this instance answers queries of its stores; published to the group",
        check=host_and_port,
    )
    client_rack: str = setting(
        "", "rack of this instance; overridden by SPARKRELAY_CLIENT_RACK in the machine's environment"
    )
    client_tags: Mapping[str, str] = dataclasses.field(default_factory=dict)

    # Work
    num_stream_threads: int = setting(1, "stream threads per process", least=1, most=64)
    max_batch_records: int = setting(
        500_000, "most records of a task in one micro-batch (SparkRelay's own)", least=1, most=INT64_MAX
    )
    max_batch_bytes: int = setting(
        128 << 20,
        "most bytes of records in one micro-batch, as fetched and decoded; a single record may be larger "
        "(SparkRelay's own)",
        least=1 << 20,
        most=INT64_MAX,
    )
    max_decompressed_batch_bytes: int = setting(
        DECOMPRESSED_BATCH_BYTES,
        "most bytes of one record batch after decompression; a larger one ends the instance (SparkRelay's own)",
        least=1_024,
    )
    poll_ms: int = setting(
        500,
        "longest time that a broker delays the answer to a fetch request without new records, ms",
        least=1,
        most=60_000,
    )
    commit_interval_ms: int = setting(
        0, "shortest interval between micro-batches, ms; 0: as soon as there is input", most=60_000
    )
    batch_cpu_percent: int = setting(
        50,
        "percent of one core for a stream thread's small micro-batches; a lower value spaces them out (SparkRelay's "
        "own)",
        least=1,
        most=6_400,
    )
    event_time_after_max_ms: int = setting(
        3_600_000,
        "how far ahead of this machine's clock an event time may move a watermark, ms; rows with later times count "
        "only for their own window, or in a versioned table for their key (SparkRelay's own)",
        most=INT64_MAX,
    )
    max_task_idle_ms: int = setting(
        0,
        "if a grouping with a watermark reads several topics: how long a topic read to its end holds the watermark "
        "back after its last row, ms; 0: not at all",
        most=INT64_MAX,
    )
    join_idle_ms: int = setting(
        60_000,
        "how long a stream-stream join waits for an idle side before its watermark advances without it, ms "
        "(SparkRelay's own)",
        most=INT64_MAX,
    )
    watermark_idle_ms: int = setting(
        0,
        "how long a task without input waits before its watermarks advance by the clock, so that its last windows "
        "close, ms; 0: never. Should be longer than a takeover (SparkRelay's own)",
        most=INT64_MAX,
    )
    max_batch_retries: int = setting(2, "retries of a failed micro-batch (SparkRelay's own)", most=100)
    deserialization_exception_handler: str = setting(
        FAIL, "what to do with a record that cannot be decoded", choices=(FAIL, CONTINUE)
    )
    processing_exception_handler: str = setting(
        FAIL,
        "what to do with a record on which a step of the pipeline fails, such as a Python function (KIP-1033)",
        choices=(FAIL, CONTINUE),
    )
    production_exception_handler: str = setting(
        FAIL,
        "what to do with a record whose results cannot be written, for example because they are too large",
        choices=(FAIL, CONTINUE),
    )
    errors_dead_letter_queue_topic_name: str | None = setting(
        None,
        "topic for records that an exception handler skips (KIP-1034); default: they are only logged",
        check=config_checks.topic_name,
    )
    schema_registry_url: str = setting(
        "",
        "http://HOST:PORT[,...] of the schema registry for Avro() and similar formats; used by the driver only",
        check=config_checks.registry,
    )
    basic_auth_user_info: str = setting(
        "", "USER:PASSWORD for the schema registry", secret=True, check=config_checks.user_info
    )
    schema_registry_ssl_ca_location: str = setting(
        "", "PEM file with the CA certificates of the registry; default: the system's", check=config_checks.path
    )
    auto_register_schemas: bool = setting(
        False, "whether to register missing schemas of to(..., Avro(schema, framed=True)) (Confluent: true)"
    )
    key_subject_name_strategy: str = setting(
        "TopicNameStrategy",
        "subject of key schemas in the registry: TopicNameStrategy, RecordNameStrategy or TopicRecordNameStrategy",
        check=config_checks.strategy,
    )
    value_subject_name_strategy: str = setting("TopicNameStrategy", "the same for values", check=config_checks.strategy)
    topology_optimization: str = setting(
        "none",
        "reuse.ktable.source.topics, or all: the source topic of a table is also its changelog",
        check=config_checks.optimization,
    )

    # State and availability (KIP-441)
    num_standby_replicas: int = setting(0, "standby copies per stateful task", most=100)
    max_warmup_replicas: int = setting(2, "most concurrent warm-ups in the whole group", least=1)
    acceptable_recovery_lag: int = setting(10_000, "largest lag, in offsets, of a caught-up copy", most=INT64_MAX)
    probing_rebalance_interval_ms: int = setting(
        600_000, "interval of probing rebalances, which check warm-ups, ms", least=60_000, most=INT64_MAX
    )
    follow_up_when_caught_up: bool = setting(
        True, "whether a follow-up rebalance starts as soon as a warm-up has caught up (SparkRelay's own)"
    )
    follow_up_min_interval_ms: int = setting(
        10_000,
        "longest pause before such a follow-up, ms: at most 1 s at first, doubled for each one soon after the last "
        "(SparkRelay's own)",
        most=INT64_MAX,
    )
    task_assignor_class: Any = setting(None, "task assignor: class, import path or file.py:Class (KIP-924)")
    rack_aware_assignment_strategy: str = setting(
        "none",
        "how to reduce the partitions read across racks (KIP-925)",
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
        (), "client tags by whose values standbys are spread, up to 5 (KIP-708)", check=config_checks.tag_names
    )
    state_cleanup_delay_ms: int = setting(
        600_000, "how long to keep local copies of tasks that moved away, ms", most=INT64_MAX
    )
    store_max_bytes: int = setting(
        64 << 30, "largest local state of one task, bytes (SparkRelay's own)", least=1 << 20, most=INT64_MAX
    )

    # Group membership and transactions
    auto_offset_reset: str = setting(
        "earliest", "where a task without a committed offset starts", choices=("earliest", "latest")
    )
    on_data_loss: str = setting(
        "fail",
        "what a task does if its next records were deleted unread: fail, or continue at the first remaining record "
        "(SparkRelay's own)",
        choices=("fail", "continue"),
    )
    session_timeout_ms: int = setting(45_000, "how long until a silent instance counts as dead, ms", least=1_000)
    heartbeat_interval_ms: int = setting(
        500, "interval of heartbeats, by which members learn of a rebalance, ms (Kafka: 3000)", least=50
    )
    max_poll_interval_ms: int = setting(
        300_000,
        "longest rebalance, ms; a micro-batch that delays one by half of it is cancelled and undone",
        least=1_000,
    )
    transaction_timeout_ms: int = setting(
        60_000, "how long a transaction may stay open before the broker aborts it, ms", least=1_000
    )
    replication_factor: int = setting(
        -1,
        "replicas of each internal topic; -1: the broker's default",
        least=-1,
        most=(1 << 15) - 1,
        check=config_checks.replication_factor,
    )
    executor_wait_timeout_ms: int = setting(
        300_000,
        "on a Spark cluster: how long an instance may have no executor before it ends in ERROR, ms (SparkRelay's own)",
        least=1_000,
        most=INT64_MAX,
    )
    request_timeout_ms: int = setting(30_000, "timeout of a request, ms", least=100)
    default_api_timeout_ms: int = setting(60_000, "timeout of an operation, ms", least=100)

    # Monitoring
    metrics_port: int = setting(
        0, "port of the instance's live page, /metrics, /health and /ready; 0: none (SparkRelay's own)", most=65_535
    )
    metrics_host: str = setting(
        "127.0.0.1",
        "address of metrics.port; 0.0.0.0: all of this machine (SparkRelay's own)",
        check=config_checks.not_empty,
    )
    metrics_server: str = setting(
        "",
        "HOST:PORT of this instance's page for the group's other instances; default: metrics.port at metrics.host, or "
        "at this machine's address towards the brokers if that is 0.0.0.0 (SparkRelay's own)",
        check=host_and_port,
    )

    # Interactive queries
    queries_enabled: bool = setting(
        True, "whether this instance listens at application.server; false: your own server does (SparkRelay's own)"
    )
    queries_host: str = setting(
        "", "address to listen at for queries; default: the host of application.server (SparkRelay's own)"
    )
    queries_token: str = setting(
        "",
        "token that clients send as Authorization: Bearer; the same for all instances, required beyond this machine "
        "(SparkRelay's own)",
        secret=True,
        check=config_checks.token,
    )
    queries_max_rows: int = setting(10_000, "most rows of one answer (SparkRelay's own)", least=1, most=1_000_000)
    queries_max_requests: int = setting(
        16, "most concurrent queries; others wait for a second, then get 503 (SparkRelay's own)", least=1, most=1_000
    )
    queries_timeout_ms: int = setting(
        5_000, "timeout of an answer of another instance, ms (SparkRelay's own)", least=10, most=50_000
    )

    # Settings of the clients underneath
    consumer: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    producer: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    admin: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    task_assignor: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    security: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.max_task_idle_ms == -1:
            raise ConfigException(
                "max.task.idle.ms=-1 has Kafka Streams take records in any order, even if a topic has older ones that "
                "are still unread: here these would be late for their windows. Leave it at 0: then a topic read to its "
                "end does not hold the watermark back"
            )
        check(self)
        try:
            check_client_tags(self.client_tags)
        except ValueError as error:
            raise ConfigException(str(error)) from None
        if self.heartbeat_interval_ms * 3 > self.session_timeout_ms:
            raise ConfigException(
                f"heartbeat.interval.ms ({self.heartbeat_interval_ms}) must be at most a third of session.timeout.ms "
                f"({self.session_timeout_ms}): otherwise one lost heartbeat expires the member"
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
        """Whether an exception handler may skip a record."""
        return CONTINUE in {
            self.deserialization_exception_handler,
            self.processing_exception_handler,
            self.production_exception_handler,
        }

    @property
    def reuses_source_topics(self) -> bool:
        """Whether the source topic of a table is also its changelog."""
        return self.topology_optimization in {"all", REUSE_SOURCE_TOPICS}

    def displayed(self) -> dict[str, str]:
        """Return each setting as text, by key, for a page that others see: possible secrets are ``[hidden]``."""
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
        """Return the settings of a dictionary with dotted keys.

        Raises:
            ConfigException: a key is unknown or missing, or a value malformed or out of range.
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
        values, _ = read(cls, own, what="an instance", foreign=FOREIGN)
        return cls(**values | groups)
