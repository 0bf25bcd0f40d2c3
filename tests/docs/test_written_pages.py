"""The pages that are made from tables are what the tables say."""

from __future__ import annotations

import pytest

from tools.pages.__main__ import DOCS, written


@pytest.mark.parametrize("name", written())
def test_a_page_is_what_its_table_says(name: str) -> None:
    kept = (DOCS / name).read_text(encoding="utf-8")
    assert kept == written()[name], "run: python -m tools.pages"
