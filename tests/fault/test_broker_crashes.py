"""A part of the campaigns of ``broker_crashes`` and ``transaction_crashes``."""

from __future__ import annotations

import pytest

from tests.fault.broker_crashes import run
from tests.fault.transaction_crashes import judge_workload
from tests.support.tier import FULL, one_of


@pytest.mark.full
def test_crashes_lose_and_double_nothing() -> None:
    crashes = 250 if FULL else 50
    assert run(crashes, seed=1) >= crashes


@pytest.mark.parametrize("version", one_of(2, 0))
def test_crashes_leave_every_transaction_whole(version: int) -> None:
    assert judge_workload(version, 2, "few") > 10
