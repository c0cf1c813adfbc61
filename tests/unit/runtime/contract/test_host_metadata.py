"""A process's tags and rack come from its settings, its host and its machine's environment."""

import dataclasses
import socket

import pytest

from sparkrelay.config import StreamsConfig
from sparkrelay.errors import ConfigException
from sparkrelay.runtime.contract.host_metadata import HostMetadata

HERE = HostMetadata("worker-7")


def config(**settings):
    return StreamsConfig.from_dict({"application.id": "app", "bootstrap.servers": "localhost:1", **settings})


def test_the_host_is_a_tag_of_its_own_accord():
    placed = HERE.applied_to(config(**{"client.tag.zone": "a", "client.rack": "r1"}))
    assert (dict(placed.client_tags), placed.client_rack) == ({"zone": "a", "host": "worker-7"}, "r1")


def test_a_host_tag_of_the_users_own_is_kept():
    assert HERE.applied_to(config(**{"client.tag.host": "mine"})).client_tags == {"host": "mine"}


def test_a_sixth_tag_is_not_added():
    five = {f"client.tag.t{number}": "x" for number in range(5)}
    assert sorted(HERE.applied_to(config(**five)).client_tags) == ["t0", "t1", "t2", "t3", "t4"]


def test_long_host_names_stay_apart():
    long = "executor-in-a-very-long-namespace-"
    one, other = (HostMetadata(f"{long}{n}").applied_to(config()).client_tags["host"] for n in (1, 2))
    assert one != other
    assert (len(one), one[:21]) == (30, long[:21])


def test_what_the_machine_says_wins():
    environment = {
        "SPARKRELAY_CLIENT_RACK": "r9",
        "SPARKRELAY_CLIENT_TAG_ZONE": "b",
        "SPARKRELAY_CLIENT_TAG_EMPTY": "",
        "PATH": "/bin",
    }
    here = HostMetadata.here(environment)
    assert here == HostMetadata(socket.gethostname(), "r9", {"zone": "b"})
    placed = dataclasses.replace(here, host="h").applied_to(config(**{"client.tag.zone": "a", "client.rack": "r1"}))
    assert (placed.client_tags, placed.client_rack) == ({"zone": "b", "host": "h"}, "r9")


def test_standbys_can_be_spread_over_hosts_and_over_tags_of_the_environment():
    for tag, here in (("host", HERE), ("zone", dataclasses.replace(HERE, tags={"zone": "a"}))):
        placed = here.applied_to(config(**{"rack.aware.assignment.tags": tag}))
        assert placed.rack_aware_assignment_tags == (tag,)


@pytest.mark.parametrize(
    ("tags", "settings", "message"),
    [
        ({}, {"rack.aware.assignment.tags": "zone"}, r"'zone'.*on worker-7.*client\.tag\.zone.*CLIENT_TAG_ZONE"),
        ({"zone": "v" * 31}, {}, r"'zone'='v+' is too long.*SPARKRELAY_CLIENT_TAG_\* on worker-7"),
        ({"sixth": "x"}, {f"client.tag.t{n}": "x" for n in range(5)}, r"at most 5 tags.*worker-7"),
        ({"sparkrelay.topology": "x"}, {}, "SparkRelay's own"),
    ],
)
def test_tags_that_cannot_be(tags, settings, message):
    with pytest.raises(ConfigException, match=message):
        dataclasses.replace(HERE, tags=tags).applied_to(config(**settings))
