"""``import kprod`` stays cheap: what only some users need is imported when they use it."""

from __future__ import annotations

import subprocess
import sys

from tests.architecture.sources import ROOT

EXPENSIVE = (
    *("asyncio", "concurrent.futures", "crc32c", "email", "importlib.metadata", "ssl"),
    *("kio", "numpy", "pandas", "pyarrow", "pyspark", "rich", "typer"),
    *("datetime", "difflib", "importlib.util", "json", "platform", "selectors", "socket", "uuid"),
    *("kprod.bulk.arrow_sending", "kprod.bulk.delivery", "kprod.bulk.rows"),
    *("kprod.transport.tcp", "kprod.transport.memory", "kprod.intake.named_serializers"),
)


def test_import_kprod_pulls_in_nothing_expensive() -> None:
    script = f"import kprod, sys; print(*[m for m in {EXPENSIVE!r} if m in sys.modules])"
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == []
