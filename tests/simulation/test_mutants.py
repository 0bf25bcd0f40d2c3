"""The simulation bites: each planted bug is noticed, and without it nothing is."""

from __future__ import annotations

import pytest

from tests.simulation.bugs import BUGS
from tests.simulation.campaign import attempt
from tests.simulation.planted import check
from tests.support.planted import Bug


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_noticed(bug: Bug) -> None:
    check(bug, attempt)
