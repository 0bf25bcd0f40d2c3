"""Links and pictures of the documentation, as far as that shows without a browser or a build."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)


def prose(page: Path) -> str:
    return BLOCK.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """The ids that Python-Markdown gives to headings; a second one of a name has a number."""
    found: dict[str, int] = {}
    made = set()
    for heading in HEADING.findall(prose(page)):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        words = re.sub(r"[^\w\s-]", "", text).strip().lower()
        slug = re.sub(r"[-\s]+", "-", words)
        count = found.get(slug, 0)
        made.add(f"{slug}_{count}" if count else slug)
        found[slug] = count + 1
    return made


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_lead_to_files_and_headings_that_there_are(page: Path) -> None:
    broken = []
    for _, _, target in LINK.findall(prose(page)):
        if "://" in target or target.startswith("mailto:"):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_picture_says_what_it_shows(page: Path) -> None:
    assert not [target for mark, text, target in LINK.findall(prose(page)) if mark and not text]


def test_there_are_links_and_pictures() -> None:
    found = [mark for page in PAGES for mark, _, _ in LINK.findall(prose(page))]
    assert found.count("!") > 3
    assert found.count("") > 100
