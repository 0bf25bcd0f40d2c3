"""The check of the demo detects every kind of damage to a topic."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kprod.cli.demo.flights import COUNT, Flights, Tally
from kprod.cli.demo.writers import as_json
from kprod.records.record_batch import StoredRecord

ROWS = 500
FLIGHTS = Flights(ROWS)
Log = list[tuple[int, StoredRecord]]


def record(row: int) -> StoredRecord:
    return StoredRecord(row, 0, FLIGHTS.key(row), as_json(FLIGHTS, row), ())


def intact() -> Log:
    return [(0, record(row)) for row in range(len(FLIGHTS))]


def tally_of(log: Log) -> Tally:
    tally = Tally(FLIGHTS)
    for partition, stored in log:
        tally.see(partition, stored)
    return tally


def test_an_intact_topic_is_exact() -> None:
    tally = tally_of(intact())
    assert tally.exact
    assert tally.read_back == ROWS
    assert tally.by_partition == {0: ROWS}


def altered(log: Log, **changes: Any) -> Log:
    return [*log[:7], (0, log[7][1]._replace(**changes)), *log[8:]]


def with_a_field_changed(log: Log) -> Log:
    fields = json.loads(log[7][1].value or b"") | {"dest": "XXX"}
    return altered(log, value=json.dumps(fields).encode())


DAMAGES: dict[str, tuple[Callable[[Log], Log], tuple[int, int, int]]] = {
    "lost": (lambda log: log[:7] + log[8:], (1, 0, 0)),
    "repeated": (lambda log: log[:8] + log[7:], (0, 1, 0)),
    "lost and repeated": (lambda log: log[:7] + log[6:7] + log[8:], (1, 1, 0)),
    "a field": (with_a_field_changed, (1, 0, 1)),
    "a key": (lambda log: altered(log, key=b"N00000"), (1, 0, 1)),
    "cut": (lambda log: altered(log, value=(log[7][1].value or b"")[:-1]), (1, 0, 1)),
    "foreign": (lambda log: [*log, (0, StoredRecord(ROWS, 0, None, b"hello", ()))], (0, 0, 1)),
    "beyond the end": (
        lambda log: [*log, (0, log[7][1]._replace(value=b'{"row": %d}' % ROWS))],
        (0, 0, 1),
    ),
}
"""Kind of damage, and how many records are then missing, duplicated and altered."""


@pytest.mark.parametrize(("damage", "counts"), DAMAGES.values(), ids=DAMAGES)
def test_damage_is_detected(damage: Callable[[Log], Log], counts: tuple[int, int, int]) -> None:
    tally = tally_of(damage(intact()))
    assert not tally.exact
    assert (tally.missing, tally.duplicated, tally.altered) == counts


def same_aircraft() -> tuple[int, int]:
    seen: dict[bytes | None, int] = {}
    for row in range(len(FLIGHTS)):
        if (key := FLIGHTS.key(row)) in seen:
            return seen[key], row
        seen[key] = row
    raise AssertionError("no aircraft flew twice")


def test_disorder_of_one_key_is_detected() -> None:
    log = intact()
    first, second = same_aircraft()
    log[first], log[second] = log[second], log[first]
    tally = tally_of(log)
    assert (tally.out_of_order, tally.missing, tally.exact) == (1, 0, False)
    log = intact()
    log[second] = (1, log[second][1])
    assert tally_of(log).out_of_order == 1, "the key is on two partitions"


def test_records_without_key_have_no_order() -> None:
    flights = Flights()
    assert len(flights) == COUNT
    rows = [row for row in range(len(flights)) if flights.key(row) is None][:2]
    tally = Tally(flights)
    for row in reversed(rows):
        tally.see(0, StoredRecord(row, 0, None, as_json(flights, row), ()))
    assert (tally.out_of_order, tally.altered) == (0, 0)
