"""Schemas of the records in Kafka's internal topics, which kio does not include."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import MISSING, field, make_dataclass
from typing import Any, Final, NamedTuple

from kprod.broker.protocol.message_reader import Allowance, message_reader
from kprod.broker.protocol.messages import Frame, Message, message_writer
from kprod.errors import ProtocolError

_VERSION: Final = struct.Struct(">h")


class Field(NamedTuple):
    """A field's type: the name of a Kafka primitive, or a class from ``entity``."""

    of: Any
    is_array: bool = False
    nullable: bool = False
    tag: int | None = None
    default: Any = MISSING


def entity(name: str, *, flexible: bool = False, **types: str | Field) -> Any:
    """Make a class like those of kio. The fields are encoded in the given order."""
    fields = []
    for each, given in types.items():
        kind = Field(given) if isinstance(given, str) else given
        is_primitive = isinstance(kind.of, str)
        annotation = object if is_primitive else kind.of
        if kind.is_array:
            annotation = tuple[annotation, ...]  # type: ignore[valid-type]
        metadata = {"kafka_type": kind.of} if is_primitive else {}
        if kind.tag is not None:
            metadata["tag"] = kind.tag
        spec = field(default=kind.default, metadata=metadata)
        fields.append((each, annotation | None if kind.nullable else annotation, spec))
    return make_dataclass(name, fields, kw_only=True, namespace={"__flexible__": flexible})


class RecordSchema:
    """The schema of a record's key or value, in all known versions. Thread-safe.

    The encoded form begins with the version number.
    """

    def __init__(self, versions: Mapping[int, Any]) -> None:
        """``versions`` are classes from ``entity``, by version number."""
        self._versions = versions

    def encode(self, version: int, values: Message) -> bytes:
        """Encode a mapping of fields, which is as for ``message_writer``."""
        frame = Frame()
        frame.tail += _VERSION.pack(version)
        message_writer(self._versions[version])(values, frame)
        return frame.content()

    def decode(self, data: bytes) -> tuple[int, Any] | None:
        """Return version and fields; None for an unknown version. Raises ``ProtocolError``."""
        try:
            (version,) = _VERSION.unpack_from(data)
            known = self._versions.get(version)
            if known is None:
                return None
            view = memoryview(data)
            found, _ = message_reader(known)(view, _VERSION.size, Allowance(len(data)))
        except (struct.error, IndexError):
            raise ProtocolError(f"the record ends early, after {len(data)} bytes") from None
        return version, found
