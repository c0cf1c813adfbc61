import socket
import threading

import pytest
from tests.doubles.schema_registry import SchemaRegistryDouble
from tests.waiting import LONG

from sparkrelay.client.schema_registry import RegisteredSchema, SchemaRegistry
from sparkrelay.config import StreamsConfig
from sparkrelay.errors import ConfigException, SchemaRegistryException


@pytest.fixture
def double():
    with SchemaRegistryDouble() as made:
        yield made


def config(url, **more):
    basics = {"application.id": "a", "bootstrap.servers": "localhost:9"}
    return StreamsConfig.from_dict({**basics, "schema.registry.url": url, **more})


def test_subjects_versions_and_numbers(double):
    registry = SchemaRegistry(config(double.url))
    assert registry.latest("a/b-value") is None
    first = double.register("a/b-value", '"int"')
    second = double.register("a/b-value", '"long"')
    assert registry.latest("a/b-value") == RegisteredSchema(second, '"long"', "AVRO")
    assert registry.version("a/b-value", 1) == RegisteredSchema(first, '"int"', "AVRO")
    assert [schema.id for schema in registry.versions("a/b-value")] == [first, second]
    assert registry.versions("other") == []
    assert registry.by_id(second) == RegisteredSchema(second, '"long"', "AVRO")
    assert registry.by_id(99) is None
    assert registry.lookup("a/b-value", '"int"', "AVRO") == first
    assert registry.lookup("a/b-value", '"string"', "AVRO") is None
    third = registry.register("a/b-value", '"string"', "JSON")
    assert registry.latest("a/b-value") == RegisteredSchema(third, '"string"', "JSON")


def test_credentials_are_sent_and_not_shown():
    with SchemaRegistryDouble(user="ada:pa:ss") as double:
        double.register("s", '"int"')
        settings = config(double.url, **{"basic.auth.user.info": "ada:pa:ss"})
        registry = SchemaRegistry(settings)
        assert registry.latest("s") is not None
        assert "pa:ss" not in repr(settings) + repr(registry)
        with pytest.raises(SchemaRegistryException, match=r"refuses .*/subjects/s/versions/latest: 401") as raised:
            SchemaRegistry(config(double.url, **{"basic.auth.user.info": "ada:wr0ng"})).latest("s")
        assert "wr0ng" not in str(raised.value)


def test_credentials_do_not_follow_redirects(double):
    with SchemaRegistryDouble() as other:
        double.answer = lambda _: (302, f"{other.url}/subjects/s/versions/latest".encode())
        registry = SchemaRegistry(config(double.url, **{"basic.auth.user.info": "ada:secret"}))
        with pytest.raises(SchemaRegistryException, match="302"):
            registry.latest("s")
        assert other.requests == []


def test_another_address_is_asked_where_one_does_not_answer(double):
    double.register("s", '"int"')
    with SchemaRegistryDouble() as broken:
        broken.answer = lambda _: (503, b"down")
        registry = SchemaRegistry(config(f"http://127.0.0.1:9, {broken.url}/,{double.url}"))
        assert registry.latest("s") is not None
        with pytest.raises(SchemaRegistryException, match="does not answer: .*127.0.0.1:9.*503 down"):
            SchemaRegistry(config(f"http://127.0.0.1:9,{broken.url}")).latest("s")


@pytest.mark.parametrize(
    "answer",
    [b"<html>", b"[]", b"{}", b'{"id": 1}', b'{"schema": 5, "id": 1}', b'"x"', b"[" * 9_000_000,
     b'{"schema": "\\"int\\"", "id": 1, "references": [{"name": "a"}]}'],
)  # fmt: skip
def test_odd_answers_are_refused(double, answer):
    double.answer = lambda _: (200, answer)
    with pytest.raises(SchemaRegistryException):
        SchemaRegistry(config(double.url)).latest("s")


@pytest.mark.parametrize(
    "answer",
    [b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 200 + b"\r\n",
     b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
     b"HTTP/1.1 503 Down\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
     b"HTTP/1.1 200 OK\r\nContent-Length: 50000\r\n\r\n" + b"[" * 50_000],
)  # fmt: skip
def test_the_next_address_is_asked_where_one_speaks_something_else(double, answer):
    double.register("s", '"int"')
    with socket.create_server(("127.0.0.1", 0)) as server:

        def speak():
            for _ in range(2):
                connection, _ = server.accept()
                with connection:
                    connection.recv(65_536)
                    connection.sendall(answer)

        thread = threading.Thread(target=speak, daemon=True)
        thread.start()
        other = f"http://127.0.0.1:{server.getsockname()[1]}"
        assert SchemaRegistry(config(f"{other},{double.url}")).latest("s") is not None
        with pytest.raises(SchemaRegistryException, match=f"does not answer: {other}/subjects/s"):
            SchemaRegistry(config(other)).latest("s")
        thread.join(LONG)


@pytest.mark.parametrize(("code", "passing"), [(408, True), (429, True), (503, True), (401, False), (422, False)])
def test_what_may_be_answered_later_is_told_apart(double, code, passing):
    double.answer = lambda _: (code, b"no")
    with pytest.raises(SchemaRegistryException, match=str(code)) as raised:
        SchemaRegistry(config(double.url)).by_id(1)
    assert raised.value.retriable is passing


def test_numbers_that_are_no_registrys_are_not_asked_for(double):
    double.answer = lambda _: (422, b"not an INT")
    assert SchemaRegistry(config(double.url)).by_id(1 << 31) is None
    assert double.requests == []


def test_a_slow_registry_is_not_waited_for(double):
    over = threading.Event()
    double.answer = lambda _: over.wait(LONG)
    with pytest.raises(SchemaRegistryException, match="timed out"):
        SchemaRegistry(config(double.url, **{"request.timeout.ms": 200})).latest("s")
    over.set()


@pytest.mark.parametrize("url", ["localhost:8081", "file:///etc/passwd", "http://", "http://a/?x=1", "http://a:80x", "http://a:0",
                                 "http://a:70000", "http://a:1/b c", "http://a:1/\u00e9"])  # fmt: skip
def test_what_is_no_address_is_refused(url):
    with pytest.raises(ConfigException, match="give http://HOST:PORT"):
        config(url)


def test_credentials_in_an_address_are_refused_and_not_shown():
    with pytest.raises(ConfigException, match="set basic.auth.user.info instead") as raised:
        config("http://ada:hidden@registry:8081")
    assert "hidden@" not in str(raised.value)


def test_other_credentials_are_refused_and_not_shown():
    with pytest.raises(ConfigException, match="give USER:PASSWORD") as raised:
        config("http://registry:8081", **{"basic.auth.user.info": "s3cret"})
    assert "s3cret" not in str(raised.value)
    with pytest.raises(ConfigException, match="use one of TopicNameStrategy"):
        config("http://registry:8081", **{"value.subject.name.strategy": "Mine"})


def test_what_a_schema_refers_to_is_fetched_once_the_last_ones_first(double):
    money = '{"type": "fixed", "name": "Money", "size": 2}'
    item = '{"type": "record", "name": "Item", "fields": [{"name": "price", "type": "Money"}]}'
    order = '{"type": "record", "name": "Order", "fields": [{"name": "item", "type": "Item"}]}'
    double.register("money", money)
    double.register("item", item, references=[("Money", "money", 1)])
    for _ in range(2):
        number = double.register("order", order, references=[("Item", "item", 1), ("Money", "money", 1)])
    registry = SchemaRegistry(config(double.url))
    found = registry.latest("order")
    assert (found.id, found.text, found.referred) == (number, order, (("Money", money), ("Item", item)))
    assert '"size":2' in found.whole
    assert registry.by_id(number).referred == found.referred
    asked = [path for _, path in double.requests]
    assert asked.count("/subjects/item/versions/1") == asked.count("/subjects/money/versions/1") == 1


def test_references_that_lead_nowhere_are_refused(double):
    registry = SchemaRegistry(config(double.url))
    double.register("a", '"Money"', references=[("Money", "money", 1)])
    with pytest.raises(SchemaRegistryException, match="refers to version 1 of 'money', which .* does not have"):
        registry.latest("a")
    double.register("x", '"X"', references=[("Y", "y", 1)])
    double.register("y", '"Y"', references=[("X", "x", 1)])
    with pytest.raises(SchemaRegistryException, match="refers to itself"):
        registry.latest("x")
    double.register("money", '"int"')
    double.register("money", '"long"')
    double.register("b", '"B"', references=[("Money", "money", 2)])
    double.register("c", '"C"', references=[("Money", "money", 1), ("B", "b", 1)])
    with pytest.raises(SchemaRegistryException, match="as version 1 of 'money' and as version 2 of 'money'"):
        registry.latest("c")
