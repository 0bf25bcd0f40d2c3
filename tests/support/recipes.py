"""The properties files in docs/security.md, for tests that use them."""

from __future__ import annotations

import re
from pathlib import Path

import javaproperties

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
SECTION = r"^## {}\n(.*?)^## "
BLOCK = re.compile(r"^```properties\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def recipe(heading: str) -> dict[str, str]:
    """The options of the only file in that section."""
    page = PAGE.read_text(encoding="utf-8")
    section = re.search(SECTION.format(re.escape(heading)), page, re.MULTILINE | re.DOTALL)
    assert section is not None, f"{PAGE.name} has no section {heading!r}"
    (block,) = BLOCK.findall(section[1])
    return javaproperties.loads(block)
