"""Headers and timestamps as Spark hands them over, in the form ``send`` takes."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from kprod.errors import RecordTypeError
from kprod.types import Header

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MILLISECOND = datetime.timedelta(milliseconds=1)


def read_headers(headers: Any) -> list[Header]:
    """Headers from a mapping, or a sequence of pairs or of structs with ``key`` and ``value``."""
    try:
        pairs = headers.items() if isinstance(headers, Mapping) else map(_pair, headers)
        return [(key, value.encode() if isinstance(value, str) else value) for key, value in pairs]
    except (TypeError, ValueError, KeyError) as error:
        raise RecordTypeError(
            "headers must be a map, or an array of (key, value) pairs or structs; "
            f"got {type(headers).__name__}"
        ) from error


def _pair(header: Any) -> Any:
    return (header["key"], header["value"]) if isinstance(header, Mapping) else header


def read_timestamp(timestamp: Any) -> int:
    """Milliseconds since the epoch. A datetime without a zone is local time, as in Spark's rows."""
    if isinstance(timestamp, datetime.datetime):
        return (timestamp.astimezone(datetime.UTC) - EPOCH) // MILLISECOND
    if isinstance(timestamp, int):
        return timestamp
    raise RecordTypeError(
        f"a timestamp must be a datetime or ms since the epoch, not {type(timestamp).__name__}"
    )
