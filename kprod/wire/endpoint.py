"""Where a broker listens, as responses tell it."""

from __future__ import annotations

from typing import NamedTuple


class BrokerEndpoint(NamedTuple):
    """One broker of a Metadata or Produce response. Values are the peer's and unchecked."""

    node_id: int
    host: str
    port: int
    rack: str | None
