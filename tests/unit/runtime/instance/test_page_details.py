"""Where the group's other instances find an instance's page."""

import pytest

from sparkrelay.config import StreamsConfig
from sparkrelay.runtime.instance.page_details import page_address


@pytest.mark.parametrize(
    ("settings", "address"),
    [
        ({}, ""),
        ({"metrics.port": 9404}, "127.0.0.1:9404"),
        ({"metrics.port": 9404, "metrics.host": "10.1.2.3"}, "10.1.2.3:9404"),
        ({"metrics.port": 9404, "metrics.host": "fd00::7"}, "[fd00::7]:9404"),
        ({"metrics.port": 9404, "metrics.host": "0.0.0.0"}, "127.0.0.1:9404"),
        ({"metrics.port": 9404, "metrics.host": "0.0.0.0", "metrics.server": "node-3:80"}, "node-3:80"),
        ({"metrics.server": "node-3:80"}, ""),
    ],
)
def test_the_address_of_a_page(settings, address):
    least = {"application.id": "delays", "bootstrap.servers": "127.0.0.1:9092"}
    assert page_address(StreamsConfig.from_dict({**least, **settings})) == address
