"""Checks of the cluster: every address, the brokers' versions and features, the group, and this user's permissions.

Nothing is written. Permissions are probed by requests that cannot succeed, with a topic or producer id that does not
exist, or ``validate_only``; brokers check permissions first.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.client.broker_errors import ErrorCode, broker_error, error_name
from sparkrelay.client.config import ClientConfig
from sparkrelay.client.coordinators import CoordinatorCache, CoordinatorKind
from sparkrelay.client.exchanges import run_exchange
from sparkrelay.client.features import TRANSACTION_VERSION, versions_request
from sparkrelay.client.kafka_client import KafkaClient
from sparkrelay.client.messages import DescribeGroupsRequest, FindCoordinatorRequest
from sparkrelay.doctor.access import needed_access, permitted
from sparkrelay.doctor.findings import fail, ok, skip, warn
from sparkrelay.doctor.probes import permitted_on_own_names
from sparkrelay.doctor.topics import look_at_topics
from sparkrelay.errors import AuthenticationException, AuthorizationException, SparkRelayError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

    from sparkrelay.client.transport.response import Response
    from sparkrelay.doctor.findings import Finding
    from sparkrelay.doctor.topics import Question

#: API key -> lowest version, of the newest requests that an instance sends: Kafka 3.0.
_LEAST: Final = {FindCoordinatorRequest.API_KEY: 4, 9: 8}
_REFUSED_SECONDS: Final = 3.0


def look_at_brokers(settings: Mapping[str, Any], question: Question) -> Iterator[Finding]:
    """Check a cluster; ``settings`` are a client's.

    Raises:
        ConfigException: a setting is invalid.
    """
    config = ClientConfig.from_dict(settings)
    with KafkaClient(config) as client:
        try:
            client.bootstrap(question.timeout, refused_timeout=_REFUSED_SECONDS)
        except AuthenticationException as error:
            yield fail("brokers", str(error), "Fix the login: security.protocol, sasl.*, ssl.* in --command-config")
            return
        except SparkRelayError as error:
            yield fail("brokers", str(error), "Start the broker, or fix --bootstrap-servers and security.protocol")
            return
        answers = yield from _addresses(client, question)
        for node, answer in sorted(answers.items()):
            if node >= 0 and (finding := check_versions(str(client.metadata.brokers[node]), _versions(answer))):
                yield finding
        if answers:
            newest = max(answers.values(), key=lambda answer: answer.finalized_features_epoch or -1)
            yield check_features({f.name: f.max_version_level for f in newest.finalized_features or ()})
        yield skip("clocks of brokers", "brokers do not report their time", "Have NTP keep them in time as well")
        yield from _application(client, question, config.bootstrap_servers)


def check_versions(broker: str, versions: Mapping[int, int]) -> Finding | None:
    """Check whether a broker is new enough; ``versions`` has its newest version of each API key."""
    if all(versions.get(key, -1) >= least for key, least in _LEAST.items()):
        return None
    return fail(broker, "older than Kafka 3.0", "Upgrade it to Kafka 3.9 or newer, which SparkRelay is tested with")


def check_features(levels: Mapping[str, int]) -> Finding:
    """Check the finalized features of the cluster (KIP-584)."""
    shown = ", ".join(f"{name} {level}" for name, level in sorted(levels.items())) or "none"
    if levels.get(TRANSACTION_VERSION, 0) < 2:
        return warn(
            "features",
            shown,
            "Exactly once works by the older protocol, with more requests a batch. With Kafka 4.0 or newer: "
            "kafka-features.sh --bootstrap-server HOST:PORT upgrade --feature transaction.version=2",
        )
    return ok("features", shown)


def _addresses(client: KafkaClient, question: Question) -> Generator[Finding, None, dict[int, Any]]:
    """Connect to each bootstrap address and each advertised one; return the brokers' answers by node."""
    answers: dict[int, Any] = {}
    given = {-1 - number: f"{host}:{port}" for number, (host, port) in enumerate(client.config.servers())}
    advertised = {node: f"{broker.host}:{broker.port}" for node, broker in client.metadata.brokers.items()}
    waiting: dict[int, Response] = {
        node: client.send(versions_request(), node=node, timeout=question.timeout) for node in (*given, *advertised)
    }
    with contextlib.suppress(SparkRelayError):  # missing answers are reported below
        client.wait(list(waiting.values()), question.timeout)
    for node, response in waiting.items():
        name = f"address {given[node]}" if node < 0 else f"broker {node} at {advertised[node]}"
        if response.done and response.error is None:
            answers[node] = response.result()
            yield ok(name, "answers")
            continue
        why = str(response.error) if response.done else f"no answer within {question.timeout:g} s"
        if node < 0:
            yield warn(name, why, "Take it out of --bootstrap-servers, or start that broker: others answer")
        else:
            yield fail(
                name,
                why,
                "This is the address that the broker advertises to its clients (advertised.listeners of the listener "
                "that you use): let this machine resolve and reach it, or have the broker advertise another one",
            )
    return answers


def _versions(answer: Any) -> dict[int, int]:
    return {api.api_key: api.max_version for api in answer.api_keys}


def _application(client: KafkaClient, question: Question, servers: str) -> Iterator[Finding]:
    id_ = question.application_id
    if id_ is not None:
        commands = {(access.kind, access.name): access.command("User:NAME", servers) for access in needed_access(id_)}
        yield from _guarded("group", lambda: [_group(client, id_, question.timeout, commands["group", id_])])
        yield from _guarded("permissions", lambda: _own_names(client, id_, question.timeout, commands))
    yield from _guarded("topics", lambda: look_at_topics(client, question))


def _guarded(check: str, look: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """Yield the findings of a check; an exception is a finding as well."""
    try:
        yield from look()
    except SparkRelayError as error:
        yield fail(check, str(error), "Check whether the brokers are well, and try again with a longer --timeout")


def _group(client: KafkaClient, group: str, timeout: float, command: str) -> Finding:
    coordinators = CoordinatorCache(client)
    check = f"group {group}"
    # The last version that reports permissions on a group that does not exist yet.
    request = DescribeGroupsRequest(groups=[group], include_authorized_operations=True, max_version=5)
    what = f"describing group {group}"
    try:
        exchange = coordinators.ask_group(group, request, what, lambda answer: [answer.groups[0].error_code])
        found = run_exchange(client, what, exchange, timeout).groups[0]
    except AuthorizationException:
        return fail(check, "this user may not DESCRIBE it, nor READ it, then", command)
    operations = permitted(found.authorized_operations)
    if operations is not None and "READ" not in operations:
        return fail(check, "this user may not READ it", command)
    if found.protocol_type not in {"", "consumer"}:
        return fail(check, f"it is a group of another type, {found.protocol_type!r}", "Choose another application.id")
    members = len(found.members)
    # Brokers call an unknown group dead.
    state = "not there yet" if found.group_state == "Dead" else found.group_state
    no_reset = operations is not None and "DELETE" not in operations
    lacking = ", DELETE is not (only sparkrelay reset needs it)" if no_reset else ""
    return ok(check, f"{state}, {members} member{'' if members == 1 else 's'}; READ is permitted{lacking}")


def _own_names(
    client: KafkaClient, id_: str, timeout: float, commands: Mapping[tuple[str, str], str]
) -> Iterator[Finding]:
    """Check the permissions on names with the application's prefix."""
    own = f"{id_}-"
    coordinators = CoordinatorCache(client)
    check = f"transactional ids {own}*"
    try:
        name = f"{own}sparkrelay-doctor"
        located = coordinators.locate(CoordinatorKind.TRANSACTION, (name,))
        run_exchange(client, "finding a transaction coordinator", located, timeout)
    except AuthorizationException:
        yield fail(check, "this user may not DESCRIBE them, nor WRITE, then", commands["transactional-id", own])
        return
    codes = permitted_on_own_names(client, coordinators, name, timeout)
    if codes.pop("transactional id") == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        yield fail(check, "this user may not WRITE", commands["transactional-id", own])
    else:
        yield ok(check, "WRITE is permitted")
    check = f"topics {own}*"
    lacking = [op for op, code in codes.items() if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    if lacking:
        what = f"of what changelogs and repartition topics need, this user lacks {', '.join(lacking)}"
        yield fail(check, what, commands["topic", own])
    elif other := codes["CREATE"]:
        remedy = broker_error(other, "Set replication.factor to a value that the cluster supports")
        yield fail(check, f"none can be created: {error_name(other)}", str(remedy))
    else:
        yield ok(check, f"{', '.join(codes)} are permitted")
