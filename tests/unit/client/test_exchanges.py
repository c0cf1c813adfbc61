import pytest

from sparkrelay.client.config import ClientConfig
from sparkrelay.client.exchanges import Pause, ask, results, run_exchange, run_exchanges
from sparkrelay.errors import AuthenticationException, DisconnectException, SparkRelayError, TimeoutException

CONFIG = ClientConfig(bootstrap_servers="a:1", retry_backoff_ms=1, retry_backoff_max_ms=4)


def asking(client, request):
    return ask(client, lambda: request, node=lambda: 1, backoff=CONFIG.retry_backoff())


def test_flows_are_in_flight_at_the_same_time(scripted):
    held = []

    def script(request, node):
        if request not in held:
            held.append(request)
        return request.upper() if len(held) == 3 else None

    client = scripted(script)
    assert run_exchanges(client, {k: asking(client, k) for k in "abc"}, 5) == {"a": "A", "b": "B", "c": "C"}


def test_one_flows_failure_is_its_own(scripted):
    client = scripted(lambda request, node: AuthenticationException("no") if request == "b" else request)
    done = run_exchanges(client, {k: asking(client, k) for k in "abc"}, 5)
    assert (done["a"], done["c"]) == ("a", "c")
    assert isinstance(done["b"], AuthenticationException)
    with pytest.raises(AuthenticationException):
        results(done)


def test_a_lost_connection_is_tried_again(scripted):
    outcomes = iter([DisconnectException("gone"), DisconnectException("gone"), "there"])
    client = scripted(lambda request, node: next(outcomes))
    assert run_exchange(client, "it", asking(client, "a"), 5) == "there"
    assert client.sent == ["a", "a", "a"]


def test_time_that_runs_out_names_the_flow_and_its_last_error(scripted):
    client = scripted(lambda request, node: DisconnectException("broker 1 is away"))
    with pytest.raises(TimeoutException, match=r"doing it: not done after 0.05 s; last error: broker 1 is away"):
        run_exchange(client, "doing it", asking(client, "a"), 0.05)


def test_an_unanswered_flow_does_not_keep_the_result_of_another(scripted):
    client = scripted(lambda request, node: "yes" if request == "a" else None)
    done = run_exchanges(client, {k: asking(client, k) for k in "ab"}, 0.05)
    assert done["a"] == "yes"
    assert isinstance(done["b"], TimeoutException)


def test_mistakes_in_a_flow_are_not_hidden(scripted):
    def broken():
        yield Pause(0)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_exchange(scripted(None), "it", broken(), 5)


def test_no_flows_are_done_at_once(scripted):
    assert run_exchanges(scripted(None), {}, 5) == {}


def test_errors_of_the_tree_only_are_outcomes():
    assert results({1: "a"}) == {1: "a"}
    with pytest.raises(SparkRelayError):
        results({1: SparkRelayError()})
