"""Every page that is made from a table: ``python -m tools.pages`` writes all of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from kprod.config import option_types
from tools.pages.configuration import configuration_page, types_page
from tools.pages.dashboard import dashboard_text
from tools.pages.errors import errors_page
from tools.pages.metrics import metrics_page

DOCS = Path(__file__).parents[2] / "docs"


def written() -> dict[str, str]:
    """Each page by the name of its file in ``docs``."""
    return {
        "configuration.md": configuration_page(),
        "errors.md": errors_page(),
        "grafana.json": dashboard_text(),
        "metrics.md": metrics_page(),
    }


if __name__ == "__main__":
    for name, text in written().items():
        (DOCS / name).write_text(text, encoding="utf-8")
    types = Path(option_types.__file__)
    types.write_text(types_page())
    subprocess.run([sys.executable, "-m", "ruff", "format", "--quiet", types], check=True)
