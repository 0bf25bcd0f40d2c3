"""``python -m kprod.metrics`` prints the documentation page of the metrics."""

from __future__ import annotations

import sys

from kprod.metrics.page import page

sys.stdout.write(page())
