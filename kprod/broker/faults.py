"""Fault injection: lets the broker misbehave, so that clients can be tested."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kprod.broker.protocol.api_key import ApiKey, VersionRange

NameOf: TypeAlias = Callable[[uuid.UUID], str | None]
"""Returns the name of the topic with an id, or None."""


@dataclass(slots=True, kw_only=True, eq=False)
class Fault:
    """Injects a fault into matching requests.

    A request matches if it has the given ``api``, names ``topic``, arrives at ``node_id`` and comes
    from ``client_id``; a condition that is None is not checked. The first ``after`` matching
    requests are not affected. Then the fault applies ``times`` times (None: without limit).
    ``hits`` is the number of matching requests so far, including those that were not affected. A
    request to which an older fault applied is not counted.

    With ``error``, the broker responds with this error code and does not process the request, so
    that records are not stored. With ``error`` and ``after_append``, it processes the request
    first. The other faults let the broker process the request, and affect only the response:

    - ``delay``: Wait this many seconds before sending the response.
    - ``drop``: Never send the response.
    - ``cut_at``: Send this many bytes of the response and close the connection.
    - ``corrupt_at``: Flip a bit in this byte of the response. A negative number counts from the
      end.
    - ``throttle_ms``: Report this throttle time in the response.
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

    def meets(
        self, key: ApiKey, topics: Collection[str | None], client_id: str | None, node_id: int
    ) -> bool:
        """Whether a request that names these topics matches.

        ``after`` and ``times`` are not considered.
        """
        return (
            self.api in (None, key)
            and self.node_id in (None, node_id)
            and self.client_id in (None, client_id)
            and (self.topic is None or self.topic in topics)
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
        """Activate a fault while a ``with`` block runs."""
        try:
            yield self.add(fault)
        finally:
            self.remove(fault)

    def limit_versions(self, api: ApiKey, lowest: int, highest: int) -> None:
        """Support only the versions from ``lowest`` to ``highest`` of an API.

        If ``highest`` is below ``lowest``, the API is not supported at all.
        """
        with self._lock:
            self._versions[api] = VersionRange(lowest, highest, lowest)

    @property
    def versions(self) -> dict[ApiKey, VersionRange]:
        """The version limits by API."""
        return self._versions

    def take(
        self, key: ApiKey, body: Any, client_id: str | None, node_id: int, name_of: NameOf
    ) -> Fault | None:
        """Return the oldest fault that applies to a request, or None.

        The request is counted in the ``hits`` of each matching fault, up to the one that is
        returned. ``name_of`` is called for each topic that the request names by its id.
        """
        if not self._faults:
            return None
        topics = set(_topics(body, name_of))
        with self._lock:
            for fault in self._faults:
                if fault.meets(key, topics, client_id, node_id):
                    fault.hits += 1
                    past = fault.hits - fault.after
                    if past > 0 and (fault.times is None or past <= fault.times):
                        return fault
        return None


def _topics(body: Any, name_of: NameOf) -> Iterator[str | None]:
    """The topics in a request, from fields that are called differently in each API."""
    yield from getattr(body, "topic_names", ())  # DeleteTopics before version 6
    for group in getattr(body, "groups", ()):  # OffsetFetch from version 8 on
        yield from _topics(group, name_of)
    for list_name in ("topics", "topic_data", "v3_and_below_topics", "resources"):
        for entry in getattr(body, list_name, None) or ():
            for name in ("name", "topic", "resource_name"):
                found = getattr(entry, name, None)
                if isinstance(found, str):
                    yield found
            topic_id = getattr(entry, "topic_id", None)
            if topic_id is not None:
                yield name_of(topic_id)
