"""The modules that are compiled do what their source says, and the source runs as it is."""

from __future__ import annotations

from multiprocessing.pool import Pool

from kprod.compiled_modules import compiled_modules
from tests.simulation.campaign import digests

SEEDS = range(150)


def test_the_source_is_what_runs(as_written: Pool) -> None:
    assert not as_written.apply(compiled_modules)


def test_compiled_code_does_what_is_written(as_written: Pool) -> None:
    written = as_written.map_async(digests, [SEEDS])
    assert compiled_modules()
    assert digests(SEEDS) == written.get()[0]
