"""Protobuf messages of two files, one importing the other, built without protoc."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass


def add_field(message: Any, name: str, kind: str, of: str = "", *, repeated: bool = False) -> None:
    """Add a field to a message; ``of``: the type's name of a message or an enum."""
    message.field.add(
        name=name,
        number=len(message.field) + 1,
        type=FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}"),
        type_name=of or None,
        label=FieldDescriptorProto.Label.Value(f"LABEL_{'REPEATED' if repeated else 'OPTIONAL'}"),
    )


def message_classes(files: Iterable[FileDescriptorProto], *names: str) -> list[Any]:
    pool = DescriptorPool()
    for file in files:
        pool.AddSerializedFile(file.SerializeToString())
    return [GetMessageClass(pool.FindMessageTypeByName(name)) for name in names]


def _files() -> list[FileDescriptorProto]:
    customers = FileDescriptorProto(name="shop/customer.proto", package="shop", syntax="proto3")
    add_field(customers.message_type.add(name="Customer"), "name", "string")
    orders = FileDescriptorProto(
        name="shop/order.proto", package="shop", syntax="proto3", dependency=["shop/customer.proto"]
    )
    orders.message_type.add(name="Nothing")
    order = orders.message_type.add(name="Order")
    add_field(order, "id", "int64")
    add_field(order, "buyer", "message", ".shop.Customer")
    return [customers, orders]


Customer, Order = message_classes(_files(), "shop.Customer", "shop.Order")
