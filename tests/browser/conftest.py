"""The documentation in a browser: ``make site-check`` builds it, and runs these."""

from __future__ import annotations

import os

collect_ignore = [] if "KPROD_SITE" in os.environ else ["test_site.py"]
