"""The one way results are stored: ``benchmarks/results/NAME.json``, all of the same shape.

``question``, ``command``, what ``provenance`` tells (``started``, ``commit``, ``versions``,
``paths``, ``machine``), ``settings`` and ``figures``. The last two are the benchmark's own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "results"


def document(
    *,
    question: str,
    command: str,
    origin: Mapping[str, Any],
    settings: Mapping[str, Any],
    figures: Mapping[str, Any],
) -> dict[str, Any]:
    """A result in the shape that is stored. ``origin`` is what ``provenance`` gave."""
    told = {"question": question, "command": command, **origin}
    return {**told, "settings": settings, "figures": figures}


def write_result(name: str, *, folder: Path = FOLDER, **parts: Any) -> Path:
    """Store a result made of the parts ``document`` takes, in the place of an older one."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.json"
    fresh = file.with_suffix(".tmp")  # so that an interrupted run leaves the older result whole
    fresh.write_text(json.dumps(document(**parts), indent=1) + "\n")
    fresh.replace(file)
    return file


def read_result(name: str, folder: Path = FOLDER) -> dict[str, Any]:
    """What was stored last. Raises FileNotFoundError, saying how to measure, when nothing was."""
    file = folder / f"{name}.json"
    if not file.exists():
        raise FileNotFoundError(
            f"{file} is not there yet: benchmarks/README.md tells what makes it"
        )
    document: dict[str, Any] = json.loads(file.read_text())
    return document
