"""``python -m kprod.config`` prints the documentation page of the options."""

from __future__ import annotations

import sys

from kprod.config.page import page

sys.stdout.write(page())
