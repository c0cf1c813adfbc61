"""Two brokers of one cluster in two racks, for tests of racks and replicas."""

from __future__ import annotations

import contextlib

from tests.ports import own_port
from tests.waiting import LONG, wait_until

from sparkrelay.devkafka import DevKafka
from sparkrelay.devkafka.ports import LOOPBACK

__all__ = ["two_racks"]


@contextlib.contextmanager
def two_racks(folder):
    """Run broker 1 (controller, rack a) and broker 2 (rack b), whose data is in `folder`; yield both."""
    from confluent_kafka.admin import AdminClient

    near = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
    with DevKafka(server_properties=near | {"broker.rack": "a"}, heap_mb=256) as first:
        voters = _properties(first, "server.properties")["controller.quorum.voters"].replace("\\", "")
        port = own_port()
        # The second joins the first's cluster.
        kraft = folder / "kraft"
        kraft.mkdir(parents=True)
        cluster = _properties(first, "meta.properties")["cluster.id"]
        (kraft / "meta.properties").write_text(f"version=1\ncluster.id={cluster}\nnode.id=2\n")
        joining = {
            "broker.rack": "b",
            "node.id": "2",
            "process.roles": "broker",
            "listeners": f"PLAINTEXT://{LOOPBACK}:{port}",
            "controller.quorum.voters": voters,
        }
        with DevKafka(port=port, data_dir=folder, server_properties=near | joining, heap_mb=256) as second:
            admin = AdminClient({"bootstrap.servers": first.bootstrap_servers})
            wait_until(lambda: len(admin.list_topics(timeout=LONG).brokers) == 2, "the second broker did not join")
            yield first, second


def _properties(broker, name):
    text = next(broker.data_dir.glob(f"**/{name}")).read_text()
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
