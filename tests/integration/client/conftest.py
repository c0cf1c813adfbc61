"""A client of the run's broker, and transactions with the fewest words."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest
from tests.waiting import LONG

from sparkrelay.client.admin import Admin
from sparkrelay.client.config import ClientConfig
from sparkrelay.client.kafka_client import KafkaClient
from sparkrelay.client.transactions import TransactionCoordinator
from sparkrelay.records.batches.encode import ProducerState, encode


def connect(bootstrap_servers, **settings):
    client = KafkaClient(ClientConfig(bootstrap_servers=bootstrap_servers, **settings))
    client.bootstrap(30)
    return client


@pytest.fixture
def connected(kafka):
    """`connected(bootstrap_servers=None, **settings)` returns a client that has found its cluster."""
    clients = []

    def make(bootstrap_servers=None, **settings):
        clients.append(connect(bootstrap_servers or kafka.bootstrap_servers, **settings))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def client(connected):
    return connected()


@pytest.fixture
def admin(client):
    return Admin(client, timeout=LONG)


@pytest.fixture
def transactions(client):
    return TransactionCoordinator(client, timeout=LONG)


def encoded(values, identity=None, *, sequence=0):
    """Return the one record batch of some values, as a member of `identity`'s transaction or of none."""
    producer = None if identity is None else ProducerState(identity.producer_id, identity.epoch, sequence)
    (batch,) = encode(
        None,
        pa.array([v.encode() for v in values], pa.binary()),
        timestamps=int(time.time() * 1000),
        producer=producer,
        transactional=identity is not None,
    )
    return batch.data


@pytest.fixture
def batch():
    return encoded
