"""Protobuf messages of two files, one of which imports the other; made without protoc"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

_TYPE = FieldDescriptorProto.Type


def _add(message: Any, name: str, number: int, kind: str, of: str | None = None) -> None:
    message.field.add(
        name=name,
        number=number,
        type=_TYPE.Value(kind),
        type_name=of,
        label=FieldDescriptorProto.LABEL_OPTIONAL,
    )


def _files() -> list[FileDescriptorProto]:
    customers = FileDescriptorProto(name="shop/customer.proto", package="shop", syntax="proto3")
    _add(customers.message_type.add(name="Customer"), "name", 1, "TYPE_STRING")
    orders = FileDescriptorProto(
        name="shop/order.proto", package="shop", syntax="proto3", dependency=["shop/customer.proto"]
    )
    orders.message_type.add(name="Nothing")
    order = orders.message_type.add(name="Order")
    _add(order, "id", 1, "TYPE_INT64")
    _add(order, "buyer", 2, "TYPE_MESSAGE", ".shop.Customer")
    return [customers, orders]


def _classes() -> tuple[Any, Any]:
    pool = DescriptorPool()
    for file in _files():
        pool.AddSerializedFile(file.SerializeToString())
    found = (pool.FindMessageTypeByName(f"shop.{name}") for name in ("Customer", "Order"))
    customer, order = map(GetMessageClass, found)
    return customer, order


Customer, Order = _classes()
