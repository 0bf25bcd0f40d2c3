"""From a record's number to its batch and back, whatever the number of places."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kprod_ext import SentRecords


def model(places: list[int], batch: int) -> list[tuple[tuple[int, int], int]]:
    """The (place, batch), index of every record when batches of a place hold ``batch`` each."""
    seen: dict[int, int] = defaultdict(int)
    found = []
    for place in places:
        found.append(((place, seen[place] // batch), seen[place] % batch))
        seen[place] += 1
    return found


def sent_as(places: list[int], batch: int) -> SentRecords:
    sent = SentRecords()
    deliveries: dict[tuple[int, int], tuple[int, int]] = {}
    for place, (key, index) in zip(places, model(places, batch), strict=True):
        sent.add(place, deliveries.setdefault(key, key), index)
    return sent


@given(
    st.lists(st.sampled_from([0, 1, 7, 255, 256, 65_535, 65_536, 2**31 - 1]), max_size=80),
    st.integers(1, 9),
)
def test_every_record_is_found(places: list[int], batch: int) -> None:
    # The largest number makes the lookup allocate by it: a place is a partition or a small count.
    places = [min(place, 100_000) for place in places]
    sent = sent_as(places, batch)
    assert sent.count == len(places)
    assert [sent.locate(n) for n in range(len(places))] == model(places, batch)
    assert sum(run.count for run in sent.runs) == len(places)
    assert len(sent.runs) == len({key for key, _ in model(places, batch)})


@given(st.lists(st.integers(0, 3), max_size=120), st.integers(1, 9), st.data())
def test_records_of_some_batches_are_listed(
    places: list[int], batch: int, data: st.DataObject
) -> None:
    sent = sent_as(places, batch)
    chosen = [run for run in sent.runs if data.draw(st.booleans())]
    wanted = {run.delivery for run in chosen}
    listed = sent.records_of([(run.place, run.ordinal, run.count) for run in chosen])
    assert listed == [n for n, (key, _) in enumerate(model(places, batch)) if key in wanted]


def test_what_is_not_there_is_not_found() -> None:
    sent = sent_as([0, 1], 2)
    for number in (-1, 2):
        with pytest.raises(IndexError):
            sent.locate(number)
    assert sent.records_of([]) == []
    for place in (-1, 2**32):
        with pytest.raises(ValueError, match="no place"):
            sent.add(place, None, 0)


def test_a_gap_in_a_batch_begins_a_new_run() -> None:
    sent = SentRecords()
    delivery = object()
    for index in (0, 1, 5, 6):  # 2 to 4 are somebody else's
        sent.add(3, delivery, index)
    assert [(run.ordinal, run.first, run.count) for run in sent.runs] == [(0, 0, 2), (2, 5, 2)]
    assert [sent.locate(n)[1] for n in range(4)] == [0, 1, 5, 6]


def test_many_records_take_little_memory_each() -> None:
    sent = SentRecords()
    rng = random.Random(1)
    for n in range(10_000):
        sent.add(rng.randrange(4), "batch", n)
    assert sent.locate(9_999)[1] == 9_999
