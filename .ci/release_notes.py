"""The notes of a release: what CHANGELOG.md says under the version that pyproject.toml names.

Before that heading is written, what is unreleased.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
HEADING = re.compile(r"^## \[(.+?)\].*$", re.MULTILINE)


def notes(changelog: str, version: str) -> str:
    """The text between the heading of ``version`` and the next one.

    ``ValueError``: neither ``version`` nor anything unreleased is there.
    """
    parts = HEADING.split(changelog)[1:]
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    text = (sections.get(version) or sections.get("Unreleased", "")).strip()
    if not text:
        raise ValueError(f"CHANGELOG.md has nothing to say of {version}")
    return text


if __name__ == "__main__":
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    sys.stdout.write(notes((ROOT / "CHANGELOG.md").read_text("utf-8"), project["version"]) + "\n")
