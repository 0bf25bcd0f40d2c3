"""Checks the columns of a DataFrame on the driver, by the Arrow types that tasks will get."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import types

from kprod.errors import RecordTypeError
from kprod.schema.columns.record_columns import converters
from kprod.spark.errors import SchemaError
from kprod.spark.partition_writer import PartitionWriter
from kprod.spark.shard_rows import HASH_COLUMN, SHARD_COLUMN


def check_schema(schema: types.StructType, writer: PartitionWriter) -> None:
    """Raise SchemaError with the name of a column of ``schema`` that ``writer`` cannot send."""
    plan, topic = writer.plan, writer.plan.topic
    added = () if writer.terms is None else (SHARD_COLUMN, HASH_COLUMN)
    names = [name for name in schema.names if name not in added]
    try:
        found = plan.find(names)
        if topic is None and "topic" not in found:
            raise RecordTypeError(
                "the records have no topic: set the option topic, or select a column named topic"
            )
        if topic is not None:  # what was given wins
            found.pop("topic", None)
        kinds = {role: arrow_type(schema[name].dataType) for role, name in found.items()}
        shown = {role: f"column {name!r}" for role, name in found.items()}
        if "value" not in found:
            packed = types.StructType([schema[name] for name in plan.packed(names)])
            kinds["value"], shown["value"] = arrow_type(packed), "the columns"
        converters(kinds, topic, plan.value, plan.key, shown)
    except RecordTypeError as error:
        raise SchemaError(str(error)) from None


def arrow_type(kind: types.DataType) -> Any:
    """The Arrow type that Spark creates for a type. Raises SchemaError if there is none."""
    if isinstance(kind, types.StructType):
        return pa.struct([pa.field(each.name, arrow_type(each.dataType)) for each in kind])
    if isinstance(kind, types.ArrayType):
        return pa.list_(arrow_type(kind.elementType))
    if isinstance(kind, types.MapType):
        if isinstance(kind.keyType, types.NullType):
            raise SchemaError(f"{kind.simpleString()} is not supported: its keys are null")
        return pa.map_(arrow_type(kind.keyType), arrow_type(kind.valueType))
    if isinstance(kind, types.UserDefinedType):
        return arrow_type(kind.sqlType())
    return _arrow_type_without_parts(kind)


def _arrow_type_without_parts(kind: types.DataType) -> Any:
    if isinstance(kind, types.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, types.TimestampType):
        return pa.timestamp("us", "UTC")
    name = kind.typeName()
    if name in _MARKED:
        return pa.struct([pa.field(_MARKED[name], pa.binary(), metadata={name: "true"})])
    if name not in _ARROW:
        raise SchemaError(f"{kind.simpleString()} is not supported: cast the column")
    return pa.type_for_alias(_ARROW[name])


_ARROW = {
    "boolean": "bool",
    "byte": "int8",
    "short": "int16",
    "integer": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "string": "string",
    "char": "string",
    "varchar": "string",
    "binary": "binary",
    "date": "date32",
    "timestamp_ntz": "timestamp[us]",
    "time": "time64[ns]",
    "daytimeinterval": "duration[us]",
    "void": "null",
}
_MARKED = {"variant": "metadata", "geometry": "wkb", "geography": "wkb"}
"""By Spark's type name: the Arrow type in ``_ARROW``, the field that marks a struct here."""
