"""A topic and the rules for its name."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from typing import Final

from kprod.broker.log.partition_log import PartitionLog

INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state"})
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True)
class Topic:
    """A name, an id that no other topic ever has, and the logs of partitions 0, 1, 2 ..."""

    name: str
    id: uuid.UUID
    partitions: tuple[PartitionLog, ...]

    @property
    def is_internal(self) -> bool:
        """Whether the broker alone writes to it."""
        return self.name in INTERNAL_TOPICS


def is_legal_name(name: str) -> bool:
    """1 to 249 letters, digits, dots, underscores and dashes; not ``.`` or ``..``."""
    return _LEGAL.fullmatch(name) is not None and name not in (".", "..")
