"""The column types of a DataFrame are checked on the driver."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import types

from kprod.spark.errors import SchemaError
from kprod.spark.partition_writer import task_writer
from kprod.spark.schema_check import check_schema
from tests.support.steady_names import steady_repr

GEO_TYPES: list[types.DataType] = []
if hasattr(types, "GeometryType"):  # from Spark 4.1 on
    GEO_TYPES = [types.GeometryType(4326), types.GeographyType(4326)]


class Point(types.UserDefinedType):
    """A user-defined type; Spark stores it as a struct."""

    @classmethod
    def sqlType(cls) -> types.DataType:
        return types.StructType([types.StructField("latitude", types.DoubleType())])


def check(kind: types.DataType, **options: Any) -> None:
    writer = task_writer("t", bootstrap_servers="127.0.0.1:1", **options)
    check_schema(types.StructType([types.StructField("x", kind)]), writer)


@pytest.mark.parametrize(
    "kind",
    [
        types.BooleanType(),
        types.ByteType(),
        types.LongType(),
        types.FloatType(),
        types.DecimalType(38, 18),
        types.StringType(),
        types.CharType(3),
        types.VarcharType(3),
        Point(),
        types.BinaryType(),
        types.DateType(),
        types.TimestampType(),
        types.TimestampNTZType(),
        types.VariantType(),
        types.NullType(),
        types.MapType(types.DateType(), types.IntegerType()),
    ],
    ids=steady_repr,
)
def test_types_that_json_can_represent_are_accepted(kind: types.DataType) -> None:
    check(kind, value_format="json")
    check(types.ArrayType(types.MapType(types.StringType(), kind)), value_format="json")


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (types.DayTimeIntervalType(), "no JSON for duration"),
        (types.YearMonthIntervalType(), "is not supported"),
        (types.CalendarIntervalType(), "is not supported"),
        (types.MapType(types.BinaryType(), types.LongType()), "no name in JSON for keys of binary"),
        *((kind, "no JSON for GEOMETRY or GEOGRAPHY") for kind in GEO_TYPES),
    ],
    ids=steady_repr,
)
def test_types_that_json_cannot_represent_are_refused(kind: types.DataType, why: str) -> None:
    for column in (kind, types.ArrayType(kind), types.StructType([types.StructField("y", kind)])):
        with pytest.raises(SchemaError, match=why):
            check(column, value_format="json")


@pytest.mark.parametrize(
    ("kind", "avro", "why"),
    [
        (types.StringType(), "int", "value: the columns: x: string does not fit the Avro type int"),
        (types.VariantType(), "string", "x: a VARIANT"),
        *((kind, "string", "GEOGRAPHY does not fit the Avro type string") for kind in GEO_TYPES),
        (Point(), "string", "struct<latitude: double> does not fit the Avro type string"),
        (types.LongType(), None, r"no field of \['y'\] has the name of the columns \['x'\]"),
    ],
    ids=steady_repr,
)
def test_types_that_avro_cannot_hold_are_refused(kind: types.DataType, avro: Any, why: str) -> None:
    name = "x" if avro else "y"
    fields = [{"name": name, "type": avro or ["null", "long"]}]
    schema = json.dumps({"type": "record", "name": "R", "fields": fields})
    with pytest.raises(SchemaError, match=why):
        check(kind, value_format="avro", avro_schema=schema)


def test_variants_for_a_serializer_are_refused() -> None:
    writer = task_writer("t", bootstrap_servers="127.0.0.1:1", value_serializer=str)
    schema = types.StructType([types.StructField("value", types.ArrayType(types.VariantType()))])
    with pytest.raises(SchemaError, match="value: column 'value': a VARIANT"):
        check_schema(schema, writer)
