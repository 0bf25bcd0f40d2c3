"""What the user asked the demo for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The options of ``kprod demo``. ``bootstrap_servers`` None: start the embedded broker."""

    bootstrap_servers: str | None
    records: int
    spark: bool
    keep: bool
    data_dir: Path | None
    topic: str
    partitions: int
