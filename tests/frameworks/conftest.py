"""Programs of other frameworks; ``make frameworks`` runs them in separate environments."""

from __future__ import annotations

import os

collect_ignore = (
    [] if "KPROD_FRAMEWORKS" in os.environ else ["test_frameworks.py", "test_servers.py"]
)
