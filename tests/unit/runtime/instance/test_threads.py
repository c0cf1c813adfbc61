import pytest

from sparkrelay import KafkaStreams
from sparkrelay.errors import StreamsException


@pytest.mark.parametrize(
    ("name", "way_out"),
    [("add_stream_thread", "start another instance"), ("remove_stream_thread", "a smaller num.stream.threads")],
)
def test_threads_that_come_and_go_are_refused_with_a_way_out(name, way_out):
    with pytest.raises(StreamsException, match=rf"{name}\(\) is not there: .*{way_out}"):
        getattr(object.__new__(KafkaStreams), name)()
