"""Every Python example of the README and the docs runs as it is printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


EXAMPLES = [
    pytest.param(
        code,
        id=f"{page.name}-{number}",
        marks=[pytest.mark.spark, pytest.mark.timeout(180)] if "pyspark" in code else [],
    )
    for page in PAGES
    for number, code in enumerate(EXAMPLE.findall(page.read_text()), start=1)
]


# What activating the environment does: Spark starts its workers by looking for python3 on the path.
_ACTIVATED = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


@pytest.mark.parametrize("code", EXAMPLES)
def test_example_runs(code: str, tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=_ACTIVATED,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


def test_there_are_examples() -> None:
    assert len(EXAMPLES) > 1
