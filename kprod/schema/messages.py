"""Makes Protobuf messages from dicts of their fields."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any


def message_of(kind: Any, data: Mapping[str, Any]) -> Any:
    """A message of the class ``kind``. Raises the exceptions of the class.

    Accepts dicts for nested messages, even in maps, where the class itself does not accept dicts.
    Accepts a ``datetime`` for a Timestamp, and a ``timedelta`` for a Duration. A ``datetime``
    without a time zone is in UTC.
    """
    fields = kind.DESCRIPTOR.fields_by_name
    return kind(**{name: _field(fields.get(name), value) for name, value in data.items()})


def _field(field: Any, value: Any) -> Any:
    if value is None or field is None or field.message_type is None:
        return value
    entry = field.message_type
    if entry.GetOptions().map_entry:
        within = entry.fields_by_name["value"].message_type
        if within is None:
            return value
        return {key: _message(within, one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_message(entry, one) for one in value]
    return _message(entry, value)


def _message(descriptor: Any, value: Any) -> Any:
    from google.protobuf.message_factory import GetMessageClass

    if isinstance(value, Mapping):
        return message_of(GetMessageClass(descriptor), value)
    if isinstance(value, datetime.datetime | datetime.timedelta):
        made = GetMessageClass(descriptor)()
        fill = made.FromDatetime if isinstance(value, datetime.datetime) else made.FromTimedelta
        fill(value)
        return made
    return value
