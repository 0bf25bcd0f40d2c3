"""The notes of a release: what CHANGELOG.md says under the version that pyproject.toml names.

Before that heading is written, what is unreleased; not for a tag, which ``RELEASE_TAG`` names where
a release is made: it has to be that version, and its heading has to be there.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
HEADING = re.compile(r"^## \[(.+?)\].*$", re.MULTILINE)


def notes(changelog: str, version: str, tag: str = "") -> str:
    """The text between the heading of ``version`` and the next one.

    ``ValueError``: neither ``version`` nor anything unreleased is there, or ``tag`` is of another.
    """
    if tag and tag != f"v{version}":
        raise ValueError(f"the tag is {tag}, and pyproject.toml has {version}")
    parts = HEADING.split(changelog)[1:]
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    if tag and version not in sections:
        raise ValueError(f"CHANGELOG.md has no heading {version}")
    text = (sections.get(version) or sections.get("Unreleased", "")).strip()
    if not text:
        raise ValueError(f"CHANGELOG.md has nothing to say of {version}")
    return text


if __name__ == "__main__":
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    tag = os.environ.get("RELEASE_TAG", "")
    sys.stdout.write(notes(changelog, project["version"], tag) + "\n")
