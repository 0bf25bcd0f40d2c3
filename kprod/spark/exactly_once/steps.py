"""What the protocol of a shard asks for, one step at a time.

The protocol (``protocol``) is a generator of steps. Whoever runs it takes each one, and sends back
what came of it; ``Fenced`` is thrown in where another attempt has taken over the transactional id.
So it runs over a producer as well as over a model of the brokers.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kprod.spark.exactly_once.marker import Marker, Ranges


class Fenced(Exception):
    """A newer producer has the transactional id: nothing of this one's can be committed."""


@dataclass(frozen=True, slots=True)
class TakeOver:
    """InitProducerId: fence every other producer of this id, and end what it left open."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class ReadMarker:
    """The marker of a group; answered by a Marker, or None.

    ``wait`` until no transaction can change it; else such a one is none.
    """

    group: str
    wait: bool = True


@dataclass(frozen=True, slots=True)
class WriteRows:
    """Begin a transaction, and store every row; answered by ``Written``."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class CommitMarker:
    """Commit the transaction of this id with the marker in it; begin one if there is none."""

    transactional_id: str
    group: str
    marker: Marker


@dataclass(frozen=True, slots=True)
class CompareRows:
    """Nothing is written: raise RowsChanged unless the rows are those of the marker."""

    marker: Marker


@dataclass(frozen=True, slots=True)
class Pause:
    """Let others go on for so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What ``WriteRows`` has stored: as many rows and bytes were given to it."""

    rows: int
    bytes: int
    ranges: Ranges = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """The shard is done: ``marker`` says what it has.

    ``by_us``: this attempt has committed it. ``rewritten``: an earlier run had begun the batch.
    """

    marker: Marker
    by_us: bool
    rewritten: bool = False


Step: TypeAlias = TakeOver | ReadMarker | WriteRows | CommitMarker | CompareRows | Pause
Protocol: TypeAlias = Generator[Step, Any, Delivered]
Part: TypeAlias = Generator[Step, Any, bool]
