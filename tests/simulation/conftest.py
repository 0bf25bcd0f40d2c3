"""How many seeds a test run tries: ``pytest tests/simulation --seeds 1000 --first-seed 5000``."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from multiprocessing.pool import AsyncResult, Pool

import pytest

from tests.simulation.bites import caught
from tests.simulation.campaign import Tally, campaign
from tests.support.tier import seeds

CHUNK = 100
MOST_WORKERS = 4
IS_WORKER = "PYTEST_XDIST_WORKER" in os.environ
DEFAULT_SEEDS = seeds("KPROD_SIMULATION_SEEDS", 200, 2000)
DEFAULT_FIRST = int(os.environ.get("KPROD_SIMULATION_FIRST_SEED", "0"))


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("simulation")
    group.addoption("--seeds", type=int, default=DEFAULT_SEEDS, help="schedules to simulate")
    group.addoption("--first-seed", type=int, default=DEFAULT_FIRST, help="the first of them")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test with an argument ``seeds`` runs for every hundred of them."""
    if "seeds" in metafunc.fixturenames:
        first = metafunc.config.getoption("--first-seed", DEFAULT_FIRST)
        last = first + metafunc.config.getoption("--seeds", DEFAULT_SEEDS)
        chunks = [range(at, min(at + CHUNK, last)) for at in range(first, last, CHUNK)]
        metafunc.parametrize("seeds", chunks, ids=[f"{c.start}-{c.stop - 1}" for c in chunks])


@pytest.fixture(scope="session")
def tally_of(request: pytest.FixtureRequest) -> Iterator[Callable[[range], Tally]]:
    """What some seeds came to. All that the session asks for are run ahead, on every processor.

    A worker, one of several processes that share the tests, runs only what it is asked for.
    """
    if IS_WORKER:
        yield campaign
        return
    calls = (getattr(item, "callspec", None) for item in request.session.items)
    chunks = [call.params["seeds"] for call in calls if call is not None and "seeds" in call.params]
    workers = min(os.cpu_count() or 1, MOST_WORKERS)
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        tallies = {chunk: pool.apply_async(campaign, (chunk,)) for chunk in chunks}
        yield lambda seeds: tallies[seeds].get()


@pytest.fixture(scope="session")
def planting() -> Iterator[Pool]:
    """Processes of their own, in which bugs are planted."""
    workers = 1 if IS_WORKER else min(os.cpu_count() or 1, MOST_WORKERS)
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        yield pool


@pytest.fixture(scope="session")
def catching(request: pytest.FixtureRequest, planting: Pool) -> Callable[[int], AsyncResult[bool]]:
    """Whether a mutant is caught. Outside of a worker, all that are asked for are tried ahead."""
    if IS_WORKER:
        return lambda place: planting.apply_async(caught, (place,))
    calls = (getattr(item, "callspec", None) for item in request.session.items)
    places = [call.params.get("mutant_at") for call in calls if call is not None]
    tried = {place: planting.apply_async(caught, (place,)) for place in places if place is not None}
    return lambda place: tried[place]
