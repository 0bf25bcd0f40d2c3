"""No invariant breaks where connections fail in the middle of authentication.

``KPROD_CAMPAIGN=long`` tries a thousand seeds.
"""

from __future__ import annotations

import os

from tests.simulation.authentication import Authority
from tests.simulation.draw import draw
from tests.simulation.world import World

SEEDS = range(1000 if os.environ.get("KPROD_CAMPAIGN") == "long" else 25)
FAILURES = 12


def test_no_invariant_breaks_by_connections_that_are_refused() -> None:
    refused = lost = acknowledged = 0
    for seed in SEEDS:
        world = World(draw(seed))
        authority = Authority(seed, FAILURES)
        world.backend.kind = authority.transport
        outcome = world.run()
        assert not outcome.violations, f"seed {seed}: {outcome.violations}"
        refused, lost = refused + authority.refused, lost + authority.lost
        acknowledged += outcome.acknowledged
    assert min(refused, lost) > len(SEEDS) // 2
    assert acknowledged > 10 * len(SEEDS)
    print(f"{refused} refused, {lost} lost, {acknowledged} records acknowledged")
