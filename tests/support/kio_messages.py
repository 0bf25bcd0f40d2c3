"""Messages as an independent implementation of the protocol reads and writes them.

Thin covers over kio, which shares no code with ``kprod.wire``. Its reader is for bytes kprod
wrote, never for damaged ones: a count that is too high makes it end the process.
"""

from __future__ import annotations

import io
from dataclasses import fields
from types import ModuleType
from typing import Any

from kio.index import load_payload_module
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType


def request_schema(api: int, version: int) -> ModuleType:
    return load_payload_module(api, version, EntityType.request)


def response_schema(api: int, version: int) -> ModuleType:
    return load_payload_module(api, version, EntityType.response)


def build(entity: type[Any], **values: Any) -> Any:
    """An entity made of those of the values that this version of it has."""
    known = {field.name for field in fields(entity)}
    return entity(**{name: value for name, value in values.items() if name in known})


def encode(entity: Any) -> memoryview:
    """The body of a message."""
    body = io.BytesIO()
    entity_writer(type(entity))(body, entity)
    return memoryview(body.getvalue())


def decode_request(entity: type[Any], frame: bytes) -> tuple[Any, Any]:
    """Header and body of a frame with its size prefix, all of which they must take up."""
    size = int.from_bytes(frame[:4], "big")
    assert size == len(frame) - 4
    header, taken = entity_reader(entity.__header_schema__)(frame, 4)
    body, rest = entity_reader(entity)(frame, 4 + taken)
    assert taken + rest == size
    return header, body
