"""Browser tests of the documentation; ``make site-check`` builds it and runs them."""

from __future__ import annotations

import os

collect_ignore = [] if "KPROD_SITE" in os.environ else ["test_site.py"]
