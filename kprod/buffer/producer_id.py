"""Who writes, as the broker knows it."""

from __future__ import annotations

from typing import NamedTuple


class ProducerId(NamedTuple):
    """An id and the epoch of that id.

    ``transactional``: what it writes belongs to the transaction that is open (KIP-98).
    """

    producer_id: int
    epoch: int
    transactional: bool = False
