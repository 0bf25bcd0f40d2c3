"""How hard a run searches: ``make test-full`` sets ``KPROD_TESTS=full``, ``make test`` does not."""

from __future__ import annotations

import os
from typing import Any, Final

import pytest

FULL: Final = os.environ.get("KPROD_TESTS") == "full"
"""True in the run of the night: more examples, more seeds."""

CAMPAIGN: Final = os.environ.get("KPROD_CAMPAIGN") == "long"
"""True in ``make campaign``: faults many more times, and times that are promised."""


def seeds(variable: str, few: int, many: int) -> int:
    """How many seeds to try: what the environment says, else by the run."""
    return int(os.environ.get(variable, many if FULL else few))


def examples(few: int) -> int:
    """How many examples of a property to try, where the profile's number does not fit."""
    return 6 * few if FULL else few


def one_of(first: object, *others: object) -> list[Any]:
    """Values of a parameter of which one shows the behaviour: the others in the full run."""
    return [first, *(pytest.param(other, marks=pytest.mark.full) for other in others)]
