"""What every test shares: what is tested is compiled from what is there; how hard is searched."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parents[1]

# No deadline per example: a busy machine would turn it into a false alarm. pytest-timeout guards
# against a hang. In CI the search is longer and repeatable, so that red means the change is red.
settings.register_profile("default", deadline=None, max_examples=50)
settings.register_profile(
    "ci",
    deadline=None,
    max_examples=200,
    derandomize=True,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)

settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE", "ci" if "CI" in os.environ else "default")
)


def pytest_sessionstart() -> None:
    """A module that was changed after it was compiled would be tested as it was before."""
    for types in (ROOT / "kprod").rglob("*.pxd"):
        module = types.with_suffix(".py")
        compiled = [path.stat().st_mtime for path in module.parent.glob(f"{module.stem}.*.so")]
        if max(compiled, default=0.0) < module.stat().st_mtime:
            pytest.exit(f"{module.relative_to(ROOT)} is newer than what is compiled: make build", 3)
