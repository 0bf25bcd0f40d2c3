"""A Protobuf message with a field of each kind; made without protoc"""

from __future__ import annotations

from typing import Any

from google.protobuf import duration_pb2, timestamp_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

SCALARS = ("bool", "int32", "int64", "uint32", "uint64", "float", "double", "string", "bytes")
_FIELD = FieldDescriptorProto


def _add(message: Any, name: str, kind: str, of: str = "", *, repeated: bool = False) -> None:
    message.field.add(
        name=name,
        number=len(message.field) + 1,
        type=_FIELD.Type.Value(f"TYPE_{kind.upper()}"),
        type_name=of or None,
        label=_FIELD.LABEL_REPEATED if repeated else _FIELD.LABEL_OPTIONAL,
    )


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
    others = {
        "enum": ("enum", ".all.State"),
        "timestamp": ("message", ".google.protobuf.Timestamp"),
        "duration": ("message", ".google.protobuf.Duration"),
    }
    kinds = {kind: (kind, "") for kind in SCALARS} | others
    inner = file.message_type.add(name="Inner")
    fields = file.message_type.add(name="Fields")
    for name, (kind, of) in kinds.items():
        _add(inner, name, kind, of)
    for name, (kind, of) in kinds.items():
        entry = fields.nested_type.add(name=f"Map{name.title()}Entry")
        entry.options.map_entry = True
        _add(entry, "key", "string")
        _add(entry, "value", kind, of)
        _add(fields, name, kind, of)
        _add(fields, f"list_{name}", kind, of, repeated=True)
        _add(fields, f"map_{name}", "message", f".all.Fields.{entry.name}", repeated=True)
    _add(fields, "inner", "message", ".all.Inner")
    _add(fields, "list_inner", "message", ".all.Inner", repeated=True)
    return file


def _class() -> Any:
    pool = DescriptorPool()
    for file in (timestamp_pb2.DESCRIPTOR, duration_pb2.DESCRIPTOR):
        pool.AddSerializedFile(file.serialized_pb)
    pool.AddSerializedFile(_file().SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName("all.Fields"))


Fields = _class()
