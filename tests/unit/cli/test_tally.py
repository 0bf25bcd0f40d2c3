"""The judge of the demo notices everything that can be wrong with a topic."""

from __future__ import annotations

import json
from collections.abc import Callable

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


def judged(log: Log) -> Tally:
    tally = Tally(FLIGHTS)
    for partition, stored in log:
        tally.see(partition, stored)
    return tally


def test_an_intact_topic_is_exact() -> None:
    tally = judged(intact())
    assert tally.exact
    assert tally.read_back == ROWS
    assert tally.by_partition == {0: ROWS}


def lose_one(log: Log) -> None:
    del log[7]


def repeat_one(log: Log) -> None:
    log.insert(8, log[7])


def lose_and_repeat(log: Log) -> None:
    log[7] = log[6]


def change_a_field(log: Log) -> None:
    fields = json.loads(log[7][1].value or b"") | {"dest": "XXX"}
    log[7] = 0, log[7][1]._replace(value=json.dumps(fields).encode())


def change_a_key(log: Log) -> None:
    log[7] = 0, log[7][1]._replace(key=b"N00000")


def cut_a_value(log: Log) -> None:
    log[7] = 0, log[7][1]._replace(value=(log[7][1].value or b"")[:-1])


def add_a_stranger(log: Log) -> None:
    log.append((0, StoredRecord(ROWS, 0, None, b"hello", ())))


def add_a_row_beyond_the_end(log: Log) -> None:
    log.append((0, log[7][1]._replace(value=b'{"row": %d}' % ROWS)))


DAMAGES: list[tuple[Callable[[Log], None], tuple[int, int, int]]] = [
    (lose_one, (1, 0, 0)),
    (repeat_one, (0, 1, 0)),
    (lose_and_repeat, (1, 1, 0)),
    (change_a_field, (1, 0, 1)),
    (change_a_key, (1, 0, 1)),
    (cut_a_value, (1, 0, 1)),
    (add_a_stranger, (0, 0, 1)),
    (add_a_row_beyond_the_end, (0, 0, 1)),
]


@pytest.mark.parametrize(("damage", "counts"), DAMAGES)
def test_damage_is_noticed(damage: Callable[[Log], None], counts: tuple[int, int, int]) -> None:
    log = intact()
    damage(log)
    tally = judged(log)
    assert not tally.exact
    assert (tally.missing, tally.duplicated, tally.altered) == counts


def same_aircraft() -> tuple[int, int]:
    """Two rows of one aircraft."""
    seen: dict[bytes | None, int] = {}
    for row in range(len(FLIGHTS)):
        if (key := FLIGHTS.key(row)) in seen:
            return seen[key], row
        seen[key] = row
    raise AssertionError("no aircraft flew twice")


def test_disorder_of_one_key_is_noticed() -> None:
    log = intact()
    first, second = same_aircraft()
    log[first], log[second] = log[second], log[first]
    tally = judged(log)
    assert (tally.out_of_order, tally.missing, tally.exact) == (1, 0, False)


def test_a_key_on_two_partitions_is_noticed() -> None:
    log = intact()
    _first, second = same_aircraft()
    log[second] = (1, log[second][1])
    assert judged(log).out_of_order == 1


def test_records_without_key_have_no_order() -> None:
    flights = Flights()
    rows = [row for row in range(len(flights)) if flights.key(row) is None][:2]
    tally = Tally(flights)
    for row in reversed(rows):
        tally.see(0, StoredRecord(row, 0, None, as_json(flights, row), ()))
    assert (tally.out_of_order, tally.altered) == (0, 0)


def test_the_data_set_is_whole() -> None:
    assert len(Flights()) == COUNT
