"""Every setting of an instance: dotted key, type, default, range, unit, one line.

Keys and defaults are Kafka Streams' own where it has them, so that its documentation applies; settings that only
SparkRelay has say so. Settings for the clients underneath carry the prefixes ``consumer.``, ``producer.`` and
``admin.``; security keys are spelt as in librdkafka and need no prefix.

Unknown keys are refused, naming the nearest known one: a misspelt ``num.standby.replicas`` must not silently mean
"no standbys".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from sparkrelay.errors import ConfigException
from sparkrelay.settings import DECOMPRESSED_BATCH_BYTES, MaskedSettings, host_and_port, nearest, shown

__all__ = ["MOST_TAGS", "SECURITY_PREFIXES", "StreamsConfig", "check_application_id", "check_client_tags"]

#: How the keys of security begin. They are passed on to every connection as they are; ``client.config`` knows them.
SECURITY_PREFIXES = ("security.", "sasl.", "ssl.", "https.ca.", "oauth_cb", "enable.ssl.certificate.verification")

_PREFIXES = ("consumer.", "producer.", "admin.")
_CLIENT_TAG = "client.tag."
#: Kafka's limits, so that a subscription stays small.
MOST_TAGS = 5
_LONGEST_TAG_KEY, _LONGEST_TAG_VALUE = 20, 30
_APPLICATION_ID = re.compile(r"[A-Za-z0-9._-]{1,200}")


class StreamsConfig(BaseModel):
    """The settings of one instance, checked. Build it with :meth:`from_dict`."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=False, arbitrary_types_allowed=True)

    # Identity and place
    application_id: str = Field(
        alias="application.id", description="names the group, the state directory, internal topics"
    )
    bootstrap_servers: str = Field(alias="bootstrap.servers", description="HOST:PORT[,HOST:PORT...]")
    client_id: str = Field(
        "", alias="client.id", description="prefix of client ids; default: application.id and a process id"
    )
    group_instance_id: str | None = Field(
        None,
        alias="group.instance.id",
        description="a name of this instance that its restart has again: back within session.timeout.ms, it finds its "
        "tasks without a rebalance; its threads are told apart by -1, -2, ...",
    )
    state_dir: str | None = Field(
        None,
        alias="state.dir",
        min_length=1,
        description="where local state lives; default: sparkrelay in the user's state folder, $XDG_STATE_HOME or "
        "~/.local/state",
    )
    application_server: str = Field(
        "", alias="application.server", description="HOST:PORT told to the group; nothing answers there yet"
    )
    client_rack: str = Field(
        "",
        alias="client.rack",
        description="rack of this instance; SPARKRELAY_CLIENT_RACK in a machine's environment wins",
    )
    client_tags: Mapping[str, str] = Field(default_factory=dict, alias="client.tag.", description="client.tag.<key>")

    # Work
    num_stream_threads: int = Field(
        1, alias="num.stream.threads", ge=1, le=64, description="stream threads per process"
    )
    max_batch_records: int = Field(
        500_000,
        alias="max.batch.records",
        ge=1,
        description="records a task may take into one micro-batch (SparkRelay's own)",
    )
    max_decompressed_batch_bytes: int = Field(
        DECOMPRESSED_BATCH_BYTES,
        alias="max.decompressed.batch.bytes",
        ge=1_024,
        le=(1 << 31) - 1,
        description="most that one record batch may hold decompressed, bytes; a larger one ends the instance "
        "(SparkRelay's own)",
    )
    poll_ms: int = Field(100, alias="poll.ms", ge=1, le=60_000, description="longest wait for new input, ms")
    commit_interval_ms: int = Field(
        0,
        alias="commit.interval.ms",
        ge=0,
        le=60_000,
        description="shortest time from one micro-batch to the next, ms; 0: as soon as there is input",
    )
    max_batch_retries: int = Field(
        2,
        alias="max.batch.retries",
        ge=0,
        le=100,
        description="times a failed micro-batch is run again (SparkRelay's own)",
    )
    deserialization_exception_handler: Literal["fail", "log-and-continue"] = Field(
        "fail",
        alias="deserialization.exception.handler",
        description="what to do with a record that does not decode",
    )
    processing_guarantee: Literal["exactly_once_v2", "at_least_once"] = Field(
        "exactly_once_v2", alias="processing.guarantee", description="accepted, without effect: exactly once either way"
    )

    # State and availability (KIP-441)
    num_standby_replicas: int = Field(
        0, alias="num.standby.replicas", ge=0, le=100, description="standbys per stateful task"
    )
    max_warmup_replicas: int = Field(
        2, alias="max.warmup.replicas", ge=1, description="warm-ups in the whole group at once"
    )
    acceptable_recovery_lag: int = Field(
        10_000,
        alias="acceptable.recovery.lag",
        ge=0,
        description="lag, in offsets, at which a task counts as caught up",
    )
    probing_rebalance_interval_ms: int = Field(
        600_000,
        alias="probing.rebalance.interval.ms",
        ge=60_000,
        description="longest wait until warm-ups are looked at, ms",
    )
    follow_up_when_caught_up: bool = Field(
        True,
        alias="follow.up.when.caught.up",
        description="ask for the follow-up as soon as a warm-up is warm (SparkRelay's own)",
    )
    follow_up_min_interval_ms: int = Field(
        10_000,
        alias="follow.up.min.interval.ms",
        ge=0,
        description="what the pause before such a follow-up grows to, ms: at most 1 s at first, twice as long with "
        "each that comes soon after (SparkRelay's own)",
    )
    task_assignor_class: Any = Field(
        None, alias="task.assignor.class", description="class, import path or file.py:Class (KIP-924)"
    )
    rack_aware_assignment_strategy: Literal["none", "min_traffic", "balance_subtopology"] = Field(
        "none",
        alias="rack.aware.assignment.strategy",
        description="whether tasks are exchanged so that fewer partitions are read across racks (KIP-925)",
    )
    rack_aware_assignment_traffic_cost: int | None = Field(
        None,
        alias="rack.aware.assignment.traffic_cost",
        ge=0,
        description="cost of one partition read across racks; default: the assignor's own",
    )
    rack_aware_assignment_non_overlap_cost: int | None = Field(
        None,
        alias="rack.aware.assignment.non_overlap_cost",
        ge=0,
        description="cost of moving one task; default: the assignor's own",
    )
    rack_aware_assignment_tags: tuple[str, ...] = Field(
        (),
        alias="rack.aware.assignment.tags",
        description="client tags over whose values standbys are spread, up to 5 (KIP-708)",
    )
    state_cleanup_delay_ms: int = Field(
        600_000,
        alias="state.cleanup.delay.ms",
        ge=0,
        description="local copies of tasks that moved away are removed after this, ms",
    )
    store_max_bytes: int = Field(
        64 << 30,
        alias="store.max.bytes",
        ge=1 << 20,
        description="bound on one task's local state, bytes (SparkRelay's own)",
    )

    # Group membership and transactions
    auto_offset_reset: Literal["earliest", "latest"] = Field(
        "earliest", alias="auto.offset.reset", description="where a task without any position starts"
    )
    session_timeout_ms: int = Field(
        45_000, alias="session.timeout.ms", ge=1_000, description="a silent instance counts as dead after this, ms"
    )
    heartbeat_interval_ms: int = Field(
        500,
        alias="heartbeat.interval.ms",
        ge=50,
        description="members learn of a rebalance within this, ms (Kafka: 3000)",
    )
    max_poll_interval_ms: int = Field(
        300_000,
        alias="max.poll.interval.ms",
        ge=1_000,
        description="bound on a rebalance, ms; a micro-batch that holds one up for half of it is cancelled and undone",
    )
    transaction_timeout_ms: int = Field(
        60_000,
        alias="transaction.timeout.ms",
        ge=1_000,
        # It goes to the broker as an INT32.
        le=(1 << 31) - 1,
        description="the broker aborts a transaction open longer, ms",
    )
    replication_factor: int = Field(
        -1,
        alias="replication.factor",
        ge=-1,
        le=(1 << 15) - 1,
        description="copies of each internal topic; -1: the broker's default",
    )
    executor_wait_timeout_ms: int = Field(
        300_000,
        alias="executor.wait.timeout.ms",
        ge=1_000,
        description="on a Spark cluster, an instance without any executor for this long ends in ERROR, ms "
        "(SparkRelay's own)",
    )
    request_timeout_ms: int = Field(30_000, alias="request.timeout.ms", ge=100, description="bound on one request, ms")
    default_api_timeout_ms: int = Field(
        60_000, alias="default.api.timeout.ms", ge=100, description="bound on one operation, ms"
    )

    # What the operator sees
    metrics_port: int = Field(
        0,
        alias="metrics.port",
        ge=0,
        le=65_535,
        description="port of the instance's /metrics, /health and /ready; 0: none (SparkRelay's own)",
    )
    metrics_host: str = Field(
        "127.0.0.1",
        alias="metrics.host",
        min_length=1,
        description="address to serve them at; 0.0.0.0: all of this machine (SparkRelay's own)",
    )

    # What goes to the clients underneath, without its prefix
    consumer: Mapping[str, Any] = Field(default_factory=dict, alias="consumer.")
    producer: Mapping[str, Any] = Field(default_factory=dict, alias="producer.")
    admin: Mapping[str, Any] = Field(default_factory=dict, alias="admin.")
    security: Mapping[str, Any] = Field(default_factory=dict, alias="security.")

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
        known = cls.keys()
        values: dict[str, Any] = {}
        groups: dict[str, dict[str, Any]] = {alias: {} for alias in (*_PREFIXES, _CLIENT_TAG, "security.")}
        for key, value in settings.items():
            if not isinstance(key, str):
                raise ConfigException(f"setting names are strings such as 'application.id', not {key!r}")
            prefix = next((p for p in (*_PREFIXES, _CLIENT_TAG) if key.startswith(p) and len(key) > len(p)), None)
            if prefix is not None:
                groups[prefix][key.removeprefix(prefix)] = value
            elif key.startswith(SECURITY_PREFIXES):
                groups["security."][key] = value
            elif key == "internal.task.assignor.class":
                raise ConfigException(f"{key!r} is Kafka's internal setting; use 'task.assignor.class' instead")
            elif key not in known:
                remedy = nearest(key, known) or "; leave it out: docs/settings.md has all that there are"
                raise ConfigException(f"unknown setting {shown(key, value)}{remedy}")
            else:
                values[key] = value
        try:
            return cls.model_validate(values | groups)
        except ValidationError as error:
            raise ConfigException("; ".join(_describe(problem) for problem in error.errors())) from None

    @classmethod
    def keys(cls) -> tuple[str, ...]:
        """Return every dotted key that takes a value, in the order of this page."""
        aliases = (field.alias for field in cls.model_fields.values())
        return tuple(alias for alias in aliases if alias is not None and not alias.endswith("."))

    @field_validator("application_id")
    @classmethod
    def _check_application_id(cls, value: str) -> str:
        check_application_id(value)
        return value

    @field_validator("bootstrap_servers", mode="before")
    @classmethod
    def _check_bootstrap_servers(cls, value: object) -> object:
        if isinstance(value, list | tuple):
            value = ",".join(map(str, value))
        if isinstance(value, str):
            for server in value.split(","):
                host_and_port(server.strip())
        return value

    @field_validator("replication_factor")
    @classmethod
    def _check_replication_factor(cls, value: int) -> int:
        if value == 0:
            raise ValueError("give 1 or more, or -1 for the broker's default")
        return value

    @field_validator("application_server")
    @classmethod
    def _check_application_server(cls, value: str) -> str:
        if value:
            host_and_port(value)
        return value

    @field_validator("rack_aware_assignment_tags", mode="before")
    @classmethod
    def _split_tags(cls, value: object) -> object:
        return tuple(tag.strip() for tag in value.split(",") if tag.strip()) if isinstance(value, str) else value

    @field_validator("client_tags")
    @classmethod
    def _check_client_tags(cls, value: Mapping[str, str]) -> Mapping[str, str]:
        check_client_tags(value)
        return value

    @field_validator("consumer", "producer", "admin", "security", "client_tags", mode="after")
    @classmethod
    def _freeze(cls, value: Mapping[str, Any]) -> Mapping[str, Any]:
        return MappingProxyType(MaskedSettings(value))

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.heartbeat_interval_ms * 3 > self.session_timeout_ms:
            raise ValueError(
                f"heartbeat.interval.ms ({self.heartbeat_interval_ms}) must be at most a third of session.timeout.ms "
                f"({self.session_timeout_ms}), or one lost heartbeat expires the member"
            )
        if len(self.rack_aware_assignment_tags) > MOST_TAGS:
            raise ValueError(f"rack.aware.assignment.tags names more than {MOST_TAGS} tags")
        return self


def check_application_id(value: str) -> None:
    """Raise ValueError if that cannot be an ``application.id``."""
    if not _APPLICATION_ID.fullmatch(value) or value in {".", ".."}:
        raise ValueError("use 1 to 200 letters, digits, '.', '_' or '-': it becomes part of topic and directory names")


def check_client_tags(tags: Mapping[str, str]) -> None:
    """Check tags as KIP-708 bounds them.

    Raises:
        ValueError: there are too many, one is too long, or one is reserved.
    """
    if len(tags) > MOST_TAGS:
        raise ValueError(f"at most {MOST_TAGS} tags are allowed")
    for key, text in tags.items():
        if key.startswith("sparkrelay."):
            raise ValueError(f"tags sparkrelay.* are SparkRelay's own; call {key!r} something else")
        if len(key) > _LONGEST_TAG_KEY or len(text) > _LONGEST_TAG_VALUE:
            raise ValueError(
                f"tag {key!r}={text!r} is too long: a key has at most {_LONGEST_TAG_KEY} characters, a value "
                f"{_LONGEST_TAG_VALUE}"
            )


def _describe(problem: Any) -> str:
    # The location of a tag is its prefix and its name.
    location = "".join(f"[{part}]" if isinstance(part, int) else part for part in problem["loc"]) or "settings"
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "missing":
        return f"setting {location!r} is required"
    if not problem["loc"]:
        return str(message)
    return f"setting {location!r} has the value {problem['input']!r}: {message[:1].lower()}{message[1:]}"
