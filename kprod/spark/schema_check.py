"""The columns of a DataFrame, judged on the driver before a task starts."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import types

from kprod.errors import RecordTypeError
from kprod.spark.columns.payload_format import PayloadFormat
from kprod.spark.errors import SchemaError
from kprod.spark.exactly_once.placement import SHARD_COLUMN
from kprod.spark.partition_writer import PartitionWriter

Judge = Callable[[types.DataType], bool]

TEXT = (types.StringType, types.NullType)
PAYLOAD = (*TEXT, types.BinaryType)
INTEGERS = (types.ByteType, types.ShortType, types.IntegerType, types.LongType, types.NullType)
MOMENTS = (types.TimestampType, types.TimestampNTZType)


def check_schema(schema: types.StructType, writer: PartitionWriter) -> None:
    """Raises SchemaError naming the column of ``schema`` that ``writer`` could not send."""
    plan = writer.plan
    names = [name for name in schema.names if writer.terms is None or name != SHARD_COLUMN]
    try:
        found = plan.roles.find(names)
    except RecordTypeError as error:
        raise SchemaError(str(error)) from None
    if plan.shapes.topic is None and "topic" not in found:
        raise SchemaError(
            "the records have no topic: give one as topic=, or select a column named topic"
        )
    for role, name in found.items():
        if role == "topic" and plan.shapes.topic is not None:
            continue  # what was given wins
        if role in ("value", "key") and plan.by_row:
            continue  # a serializer of the application takes it
        _check(role, schema[name], plan.value if role == "value" else plan.key)


def _check(role: str, field: types.StructField, chosen: PayloadFormat) -> None:
    if role in ("value", "key"):
        good = chosen.kind != "binary" or isinstance(field.dataType, PAYLOAD)
        wanted = f'string or binary (or {role}_format="json")'
    else:
        judge, wanted = _OTHERS[role]
        good = judge(field.dataType)
    if not good:
        raise SchemaError(
            f"{role}: column {field.name!r} must be {wanted}, not {field.dataType.simpleString()}"
        )


def _is_headers(kind: types.DataType) -> bool:
    if isinstance(kind, types.MapType):
        return isinstance(kind.keyType, types.StringType) and isinstance(kind.valueType, PAYLOAD)
    if not (isinstance(kind, types.ArrayType) and isinstance(kind.elementType, types.StructType)):
        return False
    pair = {field.name: field.dataType for field in kind.elementType}
    if set(pair) != {"key", "value"}:
        return False
    return isinstance(pair["key"], types.StringType) and isinstance(pair["value"], PAYLOAD)


_OTHERS: dict[str, tuple[Judge, str]] = {
    "topic": (lambda kind: isinstance(kind, TEXT), "string"),
    "partition": (lambda kind: isinstance(kind, INTEGERS), "an integer"),
    "timestamp": (
        lambda kind: isinstance(kind, (*INTEGERS, *MOMENTS)),
        "a timestamp, or an integer of ms since 1970",
    ),
    "headers": (
        lambda kind: _is_headers(kind) or isinstance(kind, types.NullType),
        "a map of string to binary, or an array of structs of key: string and value: binary",
    ),
}
