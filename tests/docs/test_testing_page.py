"""The test suites in the documentation pass unchanged."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.programs import run_python

pytestmark = pytest.mark.full

DOCS = Path(__file__).parents[2] / "docs"
FILE = re.compile(r'^```python title="(\w+\.py)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    ("page", "names", "passed"),
    [
        ("testing.md", {"conftest.py", "shop.py", "test_shop.py"}, "5 passed"),
        ("broker.md", {"conftest.py", "test_orders.py"}, "1 passed"),
    ],
)
def test_the_suite_of_a_page_passes(
    page: str, names: set[str], passed: str, tmp_path: Path
) -> None:
    files = dict(FILE.findall((DOCS / page).read_text()))
    assert set(files) == names
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    suite = "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)
    assert passed in run_python(*suite, cwd=tmp_path).stdout
