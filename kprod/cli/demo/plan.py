"""What the user asked the demo for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The options of ``kprod demo``. ``bootstrap_servers`` None: start the embedded broker.

    ``options`` are those of the producer, which may hold secrets.
    """

    bootstrap_servers: str | None
    records: int
    spark: bool
    keep: bool
    data_dir: Path | None
    topic: str
    partitions: int
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
