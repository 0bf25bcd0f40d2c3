"""What the writing side of the demo says it did."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Acknowledged records, their key and value bytes, and the seconds it took.

    ``tasks`` is the number of Spark tasks that wrote, 0 without Spark. ``options`` are those of the
    producer that matter for speed, in words, where this process has one.
    """

    records: int
    bytes: int
    seconds: float
    tasks: int = 0
    options: str = ""

    def save(self, path: Path) -> None:
        """Leave it for another process."""
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> Written:
        """What another process left. Raises OSError when it left nothing."""
        return cls(**json.loads(path.read_text()))
