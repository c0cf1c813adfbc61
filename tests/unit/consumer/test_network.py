"""The end of a consumer on its network thread."""

import time
from types import SimpleNamespace

import pytest

from sparkrelay.client.loop import Loop
from sparkrelay.client.messages import MetadataRequest
from sparkrelay.consumer.config import ConsumerConfig
from sparkrelay.consumer.events import Call, Mailbox
from sparkrelay.consumer.network import Outlet
from sparkrelay.consumer.requests import Unsent
from sparkrelay.errors import DisconnectException


def test_a_consumer_that_is_in_the_queue_again_when_the_thread_ends_is_ended_once():
    # The thread ends everybody whom it finds in its queue; this one has said farewell and closed its connections.
    farewells = []

    def farewell():
        farewells.append(1)
        return [Unsent(MetadataRequest(topics=[]), lambda *_: None)]

    loop = Loop("test")
    config = ConsumerConfig.from_dict({"bootstrap.servers": "127.0.0.1:1"})
    outlet = Outlet(SimpleNamespace(), config, Mailbox(), lambda _: SimpleNamespace(managers=(), farewell=farewell))
    outlet.start(loop)
    outlet.stopping = outlet.listed = True
    outlet.end(DisconnectException("closed"))
    late = Call("a late question", time.monotonic() + 60)
    with pytest.raises(DisconnectException, match="closed"):
        outlet.submit(None, late)
    outlet.end(DisconnectException("the thread has ended"))
    assert farewells == [1]
    assert isinstance(late.future.exception(0), DisconnectException)
    loop.close()
