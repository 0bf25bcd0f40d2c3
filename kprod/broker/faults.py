"""Fault injection: makes a broker misbehave, for tests of clients."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kprod.broker.protocol.api_key import ApiKey, VersionRange


@dataclass(slots=True, kw_only=True, eq=False)
class Fault:
    """Injects a fault into matching requests.

    A request matches if it has the given ``api``, names ``topic``, arrives at ``node_id`` and comes
    from ``client_id``; None matches everything. The first ``after`` matching requests are not
    affected. Then the fault applies ``times`` times (None: without limit). ``hits`` is the number
    of matching requests so far, including those that were not affected.

    ``error``: respond with this error code without processing the request, so that records are not
    stored; with ``after_append``, process the request first. The other faults process the request
    and change only the response. ``delay``: wait this many seconds before sending it. ``drop``:
    never send it. ``cut_at``: send this many bytes of it and close the connection. ``corrupt_at``:
    flip a bit in this byte of it (a negative number counts from its end). ``throttle_ms``: report
    this throttle time in it.
    """

    api: ApiKey | None = None
    topic: str | None = None
    node_id: int | None = None
    client_id: str | None = None
    after: int = 0
    times: int | None = 1
    error: int | None = None
    after_append: bool = False
    delay: float = 0.0
    drop: bool = False
    cut_at: int | None = None
    corrupt_at: int | None = None
    throttle_ms: int | None = None
    hits: int = field(default=0, init=False)

    def meets(self, key: ApiKey, body: Any, client_id: str | None, node_id: int) -> bool:
        """Whether the fault applies to a request."""
        return (
            self.api in (None, key)
            and self.node_id in (None, node_id)
            and self.client_id in (None, client_id)
            and (self.topic is None or self.topic in set(_topics(body)))
        )


class FaultPlan:
    """The faults of one broker. Thread-safe; faults may be changed while the broker runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the rest
        self._faults: list[Fault] = []
        self._versions: dict[ApiKey, VersionRange] = {}

    def add(self, fault: Fault) -> Fault:
        """Activate a fault. Returns the same object, so that you can read its ``hits``."""
        with self._lock:
            self._faults.append(fault)
        return fault

    def remove(self, fault: Fault) -> None:
        """Deactivate a fault. Idempotent."""
        with self._lock:
            self._faults = [one for one in self._faults if one is not fault]

    def clear(self) -> None:
        """Remove all faults and all version limits."""
        with self._lock:
            self._faults = []
            self._versions = {}

    @contextmanager
    def active(self, fault: Fault) -> Iterator[Fault]:
        """Activate a fault for a ``with`` block."""
        try:
            yield self.add(fault)
        finally:
            self.remove(fault)

    def limit_versions(self, api: ApiKey, lowest: int, highest: int) -> None:
        """Support only these versions of an API, or none if ``highest`` is below ``lowest``."""
        with self._lock:
            self._versions[api] = VersionRange(lowest, highest, lowest)

    @property
    def versions(self) -> dict[ApiKey, VersionRange]:
        """The version limits by API."""
        return self._versions

    def take(self, key: ApiKey, body: Any, client_id: str | None, node_id: int) -> Fault | None:
        """Return the oldest fault that applies to a request, and count the request."""
        if not self._faults:
            return None
        with self._lock:
            for fault in self._faults:
                if fault.meets(key, body, client_id, node_id):
                    fault.hits += 1
                    past = fault.hits - fault.after
                    if past > 0 and (fault.times is None or past <= fault.times):
                        return fault
        return None


def _topics(body: Any) -> Iterator[str]:
    """The topic names in a request, whatever its field is called."""
    for list_name in ("topics", "topic_data", "v3_and_below_topics", "resources"):
        for entry in getattr(body, list_name, None) or ():
            for name in ("name", "topic", "resource_name"):
                found = getattr(entry, name, None)
                if isinstance(found, str):
                    yield found
