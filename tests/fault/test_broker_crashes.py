"""A part of the campaigns of ``broker_crashes`` and ``transaction_crashes``."""

from __future__ import annotations

import pytest

from tests.fault.broker_crashes import run
from tests.fault.transaction_crashes import judge_workload


def test_crashes_lose_and_double_nothing() -> None:
    assert run(250, seed=1) >= 250


@pytest.mark.parametrize("version", [0, 2])
def test_crashes_leave_every_transaction_whole(version: int) -> None:
    assert judge_workload(version, 2, "few") > 10
