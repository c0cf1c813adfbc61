from pathlib import Path

import pytest

from sparkrelay import errors
from sparkrelay.client.broker_errors import STALE_METADATA, ErrorCode, broker_error, error_name, is_retriable

#: What Kafka's own table says: code, name, retriable, metadata is stale.
KAFKA = [
    (int(code), name, retriable == "true", stale == "true")
    for code, name, retriable, stale in (
        line.split("\t")
        for line in Path(__file__).with_name("kafka_errors.tsv").read_text().splitlines()
        if not line.startswith("#")
    )
]


def test_every_code_of_kafka_has_its_name():
    assert [(int(code), code.name) for code in ErrorCode] == [(code, name) for code, name, *_ in KAFKA]


def test_retriable_is_what_kafka_says():
    assert {code for code in ErrorCode if is_retriable(code)} == {code for code, _, retriable, _ in KAFKA if retriable}


def test_codes_of_stale_metadata_are_kafkas_and_one_more():
    theirs = {code for code, *_, stale in KAFKA if stale}
    assert theirs | {ErrorCode.UNKNOWN_LEADER_EPOCH} == STALE_METADATA


@pytest.mark.parametrize("code", [code for code in ErrorCode if code])
def test_every_code_makes_an_exception_that_names_it(code):
    error = broker_error(code, "doing it")
    assert isinstance(error, errors.KafkaException)
    assert str(error).startswith(f"doing it: {code.name} ({int(code)})")
    assert error.retriable == is_retriable(code)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (1, errors.OffsetOutOfRangeException),
        (3, errors.UnknownTopicException),
        (65, errors.AuthorizationException),
        (58, errors.AuthenticationException),
        (35, errors.UnsupportedVersionException),
        (47, errors.ProducerFencedException),
        (90, errors.ProducerFencedException),
        (27, errors.BrokerResponseException),
        (110, errors.BrokerResponseException),
        (4711, errors.BrokerResponseException),
    ],
)
def test_a_code_becomes_the_class_that_callers_catch(code, kind):
    error = broker_error(code, "doing it")
    assert type(error) is kind
    assert str(error) == f"doing it: {error_name(code)} ({code})"
    assert error.retriable == is_retriable(code)


@pytest.mark.parametrize(("code", "thing"), [(29, "topic"), (30, "group"), (31, "cluster"), (53, "transactional id")])
def test_a_missing_permission_is_named(code, thing):
    error = broker_error(code, "doing it", needs="WRITE")
    assert type(error) is errors.AuthorizationException
    assert str(error).startswith(
        f"doing it: {error_name(code)} ({code}): this client's user lacks the permission (ACL)"
    )
    assert f"(ACL) WRITE on that {thing}." in str(error)
    assert f"(ACL) on that {thing}." in str(broker_error(code, "doing it"))
    assert "WRITE" not in str(broker_error(16, "doing it", needs="WRITE"))


def test_a_code_without_a_class_of_its_own_keeps_code_and_name():
    error = broker_error(16, "asking")
    assert (error.code, error.name, error.retriable) == (16, "NOT_COORDINATOR", True)


@pytest.mark.parametrize(
    ("code", "setting"),
    [
        (23, "partition.assignment.strategy"),
        (82, "group.instance.id"),
        (111, "group.instance.id"),
        (112, "group.remote.assignor"),
        (81, "group.max.size"),
        (26, "session.timeout.ms"),
        (38, "lower replication.factor, or set it to -1"),
        (50, "lower it, or raise the broker's"),
    ],
)
def test_codes_that_a_setting_causes_name_it(code, setting):
    assert setting in str(broker_error(code, "joining"))
