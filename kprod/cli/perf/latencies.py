"""How long records took, as percentiles."""

from __future__ import annotations

from collections.abc import Sequence

PERCENTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
BEYOND = 2
"""So many samples must lie beyond a percentile for it to say more than how one of them was."""


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """Milliseconds by name of percentile, without those the samples are too few for.

    Nearest rank: a percentile is one of the samples, never a value between two.
    """
    ordered = sorted(seconds)
    count = len(ordered)
    return {
        name: 1000 * ordered[int(share * count)]
        for name, share in PERCENTILES.items()
        if count * (1 - share) >= BEYOND
    }
