"""What a process says when its Spark session is gone."""

from types import SimpleNamespace

import pytest

from sparkrelay.errors import StreamsException
from sparkrelay.runtime.place import Place
from sparkrelay.runtime.process import Process
from sparkrelay.runtime.worker.replay import ReplaySpec


def process(*, jsc=True, exit_code=None):
    """A process on a double of a session: what SparkContext looks like once its JVM is gone."""
    jvm = SimpleNamespace(poll=lambda: exit_code)
    context = SimpleNamespace(_jsc=object() if jsc else None, _gateway=SimpleNamespace(proc=jvm))
    frame = SimpleNamespace(mapInArrow=lambda function, schema: None)
    spark = SimpleNamespace(sparkContext=context, range=lambda *_: frame)
    return Process(Place(spark, slots=2), replay=ReplaySpec(2, "app", {}, 1 << 20), name="app")


def test_a_session_that_is_there_is_fine():
    process().require_session()


@pytest.mark.parametrize(
    ("made", "message"),
    [({"jsc": False}, "the Spark session is gone: it was stopped"), ({"exit_code": -9}, "ended with exit code -9")],
)
def test_a_session_that_is_gone_is_named(made, message):
    gone = process(**made)
    with pytest.raises(StreamsException, match=message):
        gone.require_session()
    with pytest.raises(StreamsException, match=message):
        gone.run_batch(None, None, description="batch 1")
