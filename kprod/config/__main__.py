"""``python -m kprod.config FOLDER`` writes the pages of the options, ``types`` their types."""

from __future__ import annotations

import sys
from pathlib import Path

import kprod.config.option_types
from kprod.config.pages import pages, types_page

if sys.argv[1:] == ["types"]:
    Path(kprod.config.option_types.__file__).write_text(types_page())
elif len(sys.argv) == 2:
    for name, text in pages().items():
        (Path(sys.argv[1]) / name).write_text(text, encoding="utf-8")
else:
    sys.exit("expected the folder of the documentation, or: types")
