"""Sets of options under one name: what a producer is for, instead of how that is done"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

PROFILES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        # Batches wait until they are worth a request, and grow as large as one may be.
        "throughput": {
            "linger_ms": 50,
            "batch_size": 131072,
            "batch_max_size": 1048576,
            "buffer_memory": 134217728,
        },
        # Nothing waits for company, and who waits alone for a record looks for its answer first.
        "latency": {"linger_ms": 0, "busy_poll_us": 50},
        # A cluster may be away for as long as it takes to mend it.
        "durable": {
            "acks": "all",
            "enable_idempotence": True,
            "delivery_timeout_ms": 1800000,
            "close_timeout_ms_at_exit": 30000,
            "close_on_sigterm": True,
        },
    }
)
"""By name the options that a profile sets, where they are not set otherwise."""


def described() -> str:
    """What each profile sets, in words of Markdown."""
    return "; ".join(
        f"`{name}`: " + ", ".join(f"`{option}={value!r}`" for option, value in options.items())
        for name, options in PROFILES.items()
    )
