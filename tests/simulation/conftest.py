"""How many seeds a test run tries: ``pytest tests/simulation --seeds 1000 --first-seed 5000``."""

from __future__ import annotations

import os

import pytest

CHUNK = 100
FIRST = int(os.environ.get("KPROD_SIMULATION_FIRST_SEED", "0"))


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("simulation")
    group.addoption("--seeds", type=int, help="schedules to simulate")
    group.addoption("--first-seed", type=int, default=FIRST, help="the first of them")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test with an argument ``seeds`` for every hundred of its module's ``SEEDS``."""
    if "seeds" in metafunc.fixturenames:
        first = metafunc.config.getoption("--first-seed", FIRST)
        last = first + (metafunc.config.getoption("--seeds", None) or metafunc.module.SEEDS)
        chunks = [range(at, min(at + CHUNK, last)) for at in range(first, last, CHUNK)]
        metafunc.parametrize("seeds", chunks, ids=[f"{c.start}-{c.stop - 1}" for c in chunks])
