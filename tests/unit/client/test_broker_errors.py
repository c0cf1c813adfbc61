import kafka.errors
import pytest

from sparkrelay import errors
from sparkrelay.client.broker_errors import ErrorCode, broker_error, error_name, is_retriable

# Where kafka-python and Apache Kafka's own table of retriable codes differ, Apache's is right.
_APACHE_RETRIABLE = {2}
# kafka-python's name of the code, where it is an older or shorter one than Kafka's today.
_NOT_RETRIABLE_BY_US = {80, 83, 84, 60, 122, 123}


@pytest.mark.parametrize("code", [c for c in ErrorCode if c])
def test_retriable_flags_agree_with_kafka_python(code):
    theirs = kafka.errors.for_code(int(code))
    if theirs.__name__ == "UnknownError" and code != -1:
        return  # unknown to kafka-python
    expected = issubclass(theirs, kafka.errors.RetriableError) or code in _APACHE_RETRIABLE
    assert is_retriable(code) == expected or code in _NOT_RETRIABLE_BY_US


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (1, errors.OffsetOutOfRangeException),
        (3, errors.UnknownTopicException),
        (29, errors.AuthorizationException),
        (58, errors.AuthenticationException),
        (35, errors.UnsupportedVersionException),
        (47, errors.ProducerFencedException),
        (90, errors.ProducerFencedException),
        (27, errors.BrokerResponseException),
        (4711, errors.BrokerResponseException),
    ],
)
def test_a_code_becomes_the_class_that_callers_catch(code, kind):
    error = broker_error(code, "doing it")
    assert type(error) is kind
    assert str(error) == f"doing it: {error_name(code)} ({code})"
    assert error.retriable == is_retriable(code)


def test_a_code_without_a_class_of_its_own_keeps_code_and_name():
    error = broker_error(16, "asking")
    assert (error.code, error.name, error.retriable) == (16, "NOT_COORDINATOR", True)
