"""Pages of the documentation are short, and the site's menu has each of them."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
EVERY_PAGE = sorted((ROOT / "docs").rglob("*.md"))
MOST_LINES = 400


def test_no_page_is_too_long_to_read() -> None:
    lines = {page.name: len(page.read_text().splitlines()) for page in EVERY_PAGE}
    assert {name: count for name, count in lines.items() if count > MOST_LINES} == {}


def test_the_menu_has_every_page() -> None:
    menu = (ROOT / "mkdocs.yml").read_text()
    assert not [page.name for page in PAGES if f": {page.name}\n" not in menu]
