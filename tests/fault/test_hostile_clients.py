"""A part of the campaigns of ``hostile_requests`` and ``hostile_connections``."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.fault.hostile_connections import run as run_connections
from tests.fault.hostile_connections import run_changes
from tests.fault.hostile_requests import costly, cuts, frames, mutations, run

pytestmark = pytest.mark.full

MOST_MEMORY = 60_000_000
"""Bytes for connections that take room, and for what their clients are served with."""


def test_mutated_requests_are_answered_or_cost_their_connection() -> None:
    outcomes = run(mutations(3_000, seed=21))
    assert outcomes.seen["answered"] > 100


def test_a_request_that_ends_early_costs_its_connection() -> None:
    drawn = (one for frame in frames()[::10] for one in islice(cuts(frame), 0, None, 7))
    assert run(drawn).seen["closed"] > 500


def test_connections_that_only_take_room_keep_nobody_from_being_served() -> None:
    served = run_connections(300, 100, asked=200)
    assert len(served.seconds) == 200
    assert served.memory - served.memory_before < MOST_MEMORY


def test_requests_that_cost_more_than_they_say_stay_within_bounds() -> None:
    outcomes = run(costly(), every=1)
    assert outcomes.seen["waits"] == 0
    assert outcomes.seen["answered"] > 15


def test_changes_of_topics_keep_nobody_from_being_served() -> None:
    served = run_changes(8, 50)
    assert len(served.seconds) > 10
