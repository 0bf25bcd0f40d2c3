"""Records and transactions, as the application knows them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(eq=False)
class Record:
    value: bytes
    partition: int
    place: tuple[int, int] | None = None  # epoch and sequence, once it was sent


@dataclass(eq=False)
class Told:
    """A transaction as the application knows it."""

    values: list[tuple[int, bytes]] = field(default_factory=list)
    offset: bool = False
    fate: str = "open"
