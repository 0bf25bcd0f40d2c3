"""The tier of a run: ``make test-full`` sets ``KPROD_TESTS=full``, ``make test`` does not."""

from __future__ import annotations

import os
from typing import Any, Final

import pytest

FULL: Final = os.environ.get("KPROD_TESTS") == "full"
"""True in the nightly run: more examples, more seeds."""

CAMPAIGN: Final = os.environ.get("KPROD_CAMPAIGN") == "long"
"""True in ``make campaign``: many more faults, and checks of time limits."""


def seeds(variable: str, few: int, many: int) -> int:
    """The number of seeds, by the environment variable or by tier."""
    return int(os.environ.get(variable, many if FULL else few))


def examples(few: int) -> int:
    return 6 * few if FULL else few


def one_of(first: object, *others: object) -> list[Any]:
    """Parameter values: the first one always, the others only in the full run."""
    return [first, *(pytest.param(other, marks=pytest.mark.full) for other in others)]
