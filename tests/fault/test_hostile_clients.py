"""A part of the campaign of ``hostile_requests``."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.fault.hostile_requests import cuts, frames, mutations, run

pytestmark = pytest.mark.full

"""Bytes for connections that take room, and for what their clients are served with."""


def test_mutated_requests_are_answered_or_cost_their_connection() -> None:
    outcomes = run(mutations(3_000, seed=21))
    assert outcomes.seen["answered"] > 100


def test_a_request_that_ends_early_costs_its_connection() -> None:
    drawn = (one for frame in frames()[::10] for one in islice(cuts(frame), 0, None, 7))
    assert run(drawn).seen["closed"] > 500
