"""What every link of a producer shares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kprod.backoff import ExponentialBackoff
from kprod.sender.login import LoginSettings
from kprod.wire.versions import ApiKey, ApiVersions


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """What every link of a producer shares; times in seconds.

    ``setup`` is the time to connect and shake hands, longer after each time it was too short
    (KIP-601). ``needed``: the APIs without which a broker is of no use. ``login`` tells for a host
    how to log in there; None: nobody has to. ``on_versions`` is told what each broker offers, after
    every handshake.
    """

    client_id: str
    max_in_flight: int
    max_frame_bytes: int
    request_timeout: float
    setup: ExponentialBackoff
    idle_timeout: float
    reconnect: ExponentialBackoff
    needed: tuple[ApiKey, ...] = ()
    login: Callable[[str], LoginSettings] | None = None
    on_versions: Callable[[ApiVersions], None] | None = None
