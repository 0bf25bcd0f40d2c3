"""A Protobuf message with a field of each kind, built without protoc."""

from __future__ import annotations

from typing import Any

from google.protobuf import duration_pb2, timestamp_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from tests.support.proto_messages import add_field, message_classes

SCALARS = ("bool", "int32", "int64", "uint32", "uint64", "float", "double", "string", "bytes")
KINDS = {kind: (kind, "") for kind in SCALARS} | {
    "enum": ("enum", ".all.State"),
    "timestamp": ("message", ".google.protobuf.Timestamp"),
    "duration": ("message", ".google.protobuf.Duration"),
}
"""Fields by name. Repeated ones and maps have the prefixes ``list_`` and ``map_``; ``inner`` is a
message with all kinds."""


def _file() -> FileDescriptorProto:
    file = FileDescriptorProto(
        name="all/fields.proto",
        package="all",
        syntax="proto3",
        dependency=[timestamp_pb2.DESCRIPTOR.name, duration_pb2.DESCRIPTOR.name],
    )
    state = file.enum_type.add(name="State")
    for number, name in enumerate(("NEW", "PAID")):
        state.value.add(name=name, number=number)
    inner = file.message_type.add(name="Inner")
    fields = file.message_type.add(name="Fields")
    for name, (kind, of) in KINDS.items():
        add_field(inner, name, kind, of)
        entry = fields.nested_type.add(name=f"Map{name.title()}Entry")
        entry.options.map_entry = True
        add_field(entry, "key", "string")
        add_field(entry, "value", kind, of)
        add_field(fields, name, kind, of)
        add_field(fields, f"list_{name}", kind, of, repeated=True)
        add_field(fields, f"map_{name}", "message", f".all.Fields.{entry.name}", repeated=True)
    add_field(fields, "inner", "message", ".all.Inner")
    return file


def _imported(module: Any) -> FileDescriptorProto:
    return FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)


_PARTS = [_imported(timestamp_pb2), _imported(duration_pb2), _file()]
FILES = tuple(part.SerializeToString() for part in _PARTS)
(Fields,) = message_classes(_PARTS, "all.Fields")
