"""Extreme values of Spark's types as SQL, and the Avro types to write them in."""

from __future__ import annotations

from typing import Any, NamedTuple


def _logical(logical: str, /, base: str = "long", **more: Any) -> dict[str, Any]:
    return {"type": base, "logicalType": logical, **more}


FIXED = {"type": "fixed", "name": "Three", "size": 3}
ENUM = {"type": "enum", "name": "Letter", "symbols": ["a", "b"]}
MICROS, MILLIS = _logical("timestamp-micros"), _logical("timestamp-millis")
LOCAL_MICROS, LOCAL_MILLIS = _logical("local-timestamp-micros"), _logical("local-timestamp-millis")
DECIMAL = _logical("decimal", "bytes", precision=10, scale=2)
FIXED_DECIMAL = _logical("decimal", "fixed", name="Six", size=6, precision=10, scale=2)
WIDER_DECIMAL = _logical("decimal", "bytes", precision=14, scale=4)
LARGE_DECIMAL = _logical("decimal", "bytes", precision=38, scale=18)


class Kind(NamedTuple):
    values: tuple[str, ...]
    avro: tuple[Any, ...]


def _floats(kind: str, *numbers: str) -> tuple[str, ...]:
    everywhere = ("0", "-0.0", "1", "0.1", "1e7", "9999999", "0.001", "0.0009999", "-123456789")
    odd = ("NaN", "Infinity", "-Infinity")
    return tuple(f"cast('{each}' as {kind})" for each in (*everywhere, *odd, *numbers))


def _decimals(kind: str, *numbers: str) -> tuple[str, ...]:
    return tuple(f"cast('{each}' as {kind})" for each in numbers)


KINDS: dict[str, Kind] = {
    "boolean": Kind(("true", "false"), ("boolean", "string")),
    "tinyint": Kind(("-128Y", "127Y"), ("int", "long", "double")),
    "smallint": Kind(("-32768S", "32767S"), ("int", "long", "float")),
    "int": Kind(("-2147483648", "2147483647"), ("int", "long", "float")),
    "bigint": Kind(
        ("-9223372036854775808L", "9223372036854775807L", "7L"), ("long", "int", "double", MICROS)
    ),
    "float": Kind(_floats("float", "3.4028235e38", "1.4e-45"), ("float", "double")),
    "double": Kind(
        _floats("double", "1.7976931348623157e308", "4.9e-324", "1e16", "1e22"), ("double", "float")
    ),
    "decimal(10,2)": Kind(
        _decimals("decimal(10,2)", "1.10", "-99999999.99", "0", "-1.28", "1.27"),
        (DECIMAL, FIXED_DECIMAL, WIDER_DECIMAL, "double", "string"),
    ),
    "decimal(38,18)": Kind(
        _decimals("decimal(38,18)", "12345678901234567890.123456789012345678", "0", "-1e-18"),
        (LARGE_DECIMAL, DECIMAL),
    ),
    "string": Kind(
        (
            "''",
            "'a'",
            "'q\"b\\\\s/'",
            "'\u00e9\u20ac\U0001d11e'",
            "concat(chr(1), chr(8), chr(11), chr(31), chr(127), '\u2028')",
            "cast(X'ff22eda080' as string)",
        ),
        ("string", ENUM, "bytes", _logical("uuid", "string")),
    ),
    "binary": Kind(("X''", "X'00ff10'", "X'fbff'"), ("bytes", FIXED, "string")),
    "date": Kind(
        (
            "date'2024-02-29'",
            "date'0001-01-01'",
            "date'9999-12-31'",
            "date'1969-12-31'",
            "date_from_unix_date(2932897)",
            "date_from_unix_date(-719529)",
            "date_from_unix_date(100000000)",
        ),
        (_logical("date", "int"), "int", "long", MICROS),
    ),
    "timestamp": Kind(
        (
            "timestamp'2026-07-01 12:00:00.123456Z'",
            "timestamp'1969-12-31 23:59:59.9999Z'",
            "timestamp'2026-11-01 05:30:00Z'",
            "timestamp'2026-11-01 06:30:00Z'",
            "timestamp'1850-01-01 00:00:00Z'",
            "timestamp'0001-01-02 00:00:00Z'",
            "timestamp'9999-12-30 23:59:59.999999Z'",
            "timestamp_micros(253402400000000000)",
            "timestamp_micros(-100000000000000000)",
        ),
        (MICROS, MILLIS, LOCAL_MICROS, LOCAL_MILLIS, "long", "string"),
    ),
    "timestamp_ntz": Kind(
        (
            "timestamp_ntz'2026-07-01 12:00:00.123456'",
            "timestamp_ntz'2026-03-08 02:30:00'",
            "timestamp_ntz'1969-12-31 23:59:59.9999'",
            "timestamp_ntz'0001-01-01 00:00:00'",
            "timestamp_ntz'9999-12-31 23:59:59.999999'",
            "timestamp_ntz'2026-01-01 00:00:00' + make_interval(9000)",
        ),
        (LOCAL_MICROS, LOCAL_MILLIS, MICROS, MILLIS, "long"),
    ),
    "time": Kind(("time'12:34:56.123456'", "time'00:00:00'"), (_logical("time-micros"), "long")),
    "interval day to second": Kind(
        ("interval '1 02:03:04.567891' day to second", "interval '-1 02:03:04' day to second"),
        ("long", MICROS),
    ),
    "interval year to month": Kind(("interval '1-2' year to month",), ("int", "long")),
    "interval": Kind(("make_interval(1, 2, 3, 4, 5, 6, 7.5)",), ("string",)),
    "variant": Kind(
        (
            'parse_json(\'{"b":1,"a":[1,2.50,1e300,"\u00e9x",null,true,-1.5e-7]}\')',
            "parse_json('null')",
            "parse_json('[]')",
            "parse_json('123456789012345678901234567890')",
            "cast(cast('0.1' as float) as variant)",
            "cast(date'2026-07-01' as variant)",
            "cast(timestamp_ntz'2026-07-01 12:00:00.12' as variant)",
            "cast(1.10BD as variant)",
            "cast(X'00ff' as variant)",
        ),
        ("string", "bytes"),
    ),
    "collated": Kind(("'a\u00e9' collate UNICODE_CI",), ("string",)),
    "void": Kind(("null",), ("int",)),
}
