"""Faults on request: what a broker does wrong, to see what a client makes of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kprod.broker.protocol.api_key import ApiKey, VersionRange


@dataclass(slots=True, kw_only=True, eq=False)
class Fault:
    """What to do to which requests.

    It meets requests of ``api`` that name ``topic``, come to ``node_id`` and from ``client_id``,
    as far as each is given; leaves the first ``after`` alone, and ends after ``times`` (None:
    never). ``hits`` counts.

    ``error``: answer this error code, and do nothing (the record is not stored) or, with
    ``after_append``, do what was asked all the same. ``delay``: seconds before the answer goes
    out. ``drop``: no answer, ever. ``cut_at``: send this many bytes of the answer and close.
    ``corrupt_at``: flip a bit of that byte of the answer (negative: from its end).
    ``throttle_ms``: say that the client was throttled.
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
        """Whether a request is one this fault is about."""
        return (
            self.api in (None, key)
            and self.node_id in (None, node_id)
            and self.client_id in (None, client_id)
            and (self.topic is None or self.topic in set(_topics(body)))
        )


class FaultPlan:
    """The faults of one broker. Thread-safe: faults come and go while clients are served."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the rest
        self._faults: list[Fault] = []
        self._versions: dict[ApiKey, VersionRange] = {}

    def add(self, fault: Fault) -> Fault:
        """From now on. The same object is returned, for its ``hits``."""
        with self._lock:
            self._faults.append(fault)
        return fault

    def remove(self, fault: Fault) -> None:
        """No more. Idempotent."""
        with self._lock:
            self._faults = [one for one in self._faults if one is not fault]

    def clear(self) -> None:
        """No faults, and all versions."""
        with self._lock:
            self._faults = []
            self._versions = {}

    @contextmanager
    def active(self, fault: Fault) -> Iterator[Fault]:
        """The fault, for the length of a ``with`` block."""
        try:
            yield self.add(fault)
        finally:
            self.remove(fault)

    def limit_versions(self, api: ApiKey, lowest: int, highest: int) -> None:
        """Advertise and accept these versions of an API only; none when ``highest`` is less."""
        with self._lock:
            self._versions[api] = VersionRange(lowest, highest, lowest)

    @property
    def versions(self) -> dict[ApiKey, VersionRange]:
        """The limited ones."""
        return self._versions

    def take(self, key: ApiKey, body: Any, client_id: str | None, node_id: int) -> Fault | None:
        """The fault for a request, the oldest of several, which counts it."""
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
    """The names of topics in a request, under whichever name its field has."""
    for list_name in ("topics", "topic_data", "v3_and_below_topics", "resources"):
        for entry in getattr(body, list_name, None) or ():
            for name in ("name", "topic", "resource_name"):
                found = getattr(entry, name, None)
                if isinstance(found, str):
                    yield found
