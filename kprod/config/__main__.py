"""``python -m kprod.config`` prints the page of the options; ``types`` writes their types."""

from __future__ import annotations

import sys
from pathlib import Path

import kprod.config.option_types
from kprod.config.pages import page, types_page

if sys.argv[1:] == ["types"]:  # not printed: a redirection would empty what is imported here
    Path(kprod.config.option_types.__file__).write_text(types_page())
else:
    sys.stdout.write(page())
