"""What every test shares: how hard hypothesis searches."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

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
