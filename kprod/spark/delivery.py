"""How often a row may be in the topic after Spark has run its task more than once."""

from __future__ import annotations

from enum import StrEnum

from kprod.errors import ConfigError


class Delivery(StrEnum):
    """What ``delivery=`` promises."""

    AT_LEAST_ONCE = "at_least_once"
    EXACTLY_ONCE = "exactly_once"
    ATOMIC = "atomic"


def delivery_named(name: str) -> Delivery:
    """The one of that name. Raises ConfigError."""
    try:
        return Delivery(name)
    except ValueError:
        known = ", ".join(f'"{one.value}"' for one in Delivery)
        raise ConfigError(f"delivery: expected one of {known}; got {name!r}") from None
