"""How a column becomes the bytes of a key or a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from kprod.errors import ConfigError, KprodError, RecordTypeError
from kprod.spark.columns.avro_values import AvroSchema
from kprod.spark.columns.json_values import json_texts

Kind = Literal["binary", "json", "avro"]


@dataclass(frozen=True, slots=True)
class PayloadFormat:
    """``binary``: bytes and text as they are; ``json`` and ``avro``: anything. Immutable."""

    kind: Kind = "binary"
    avro: AvroSchema | None = None

    def encode(self, role: str, column: Any) -> tuple[Any, Mapping[int, KprodError]]:
        """A column that ``send_arrow`` takes, and what is wrong with single rows, by number.

        Raises RecordTypeError, naming ``role``, when the column's type has no such form.
        """
        if self.avro is not None:
            return self.avro.encode(column)
        if self.kind == "json" and not is_payload(column.type):
            return json_texts(column), {}
        return _bytes(role, column), {}


def payload_format(
    role: str, kind: str, avro_schema: str | None = None, schema_id: int | None = None
) -> PayloadFormat:
    """The format that options describe. Raises ConfigError for what does not go together."""
    if kind not in get_args(Kind):
        raise ConfigError(f"{role}_format: expected one of {list(get_args(Kind))}; got {kind!r}")
    if kind != "avro":
        if avro_schema is not None or schema_id is not None:
            raise ConfigError(f'avro_schema and schema_id go with {role}_format="avro" only')
        return PayloadFormat("json" if kind == "json" else "binary")
    if avro_schema is None:
        raise ConfigError(f'{role}_format="avro" needs avro_schema, the schema as JSON text')
    schema = AvroSchema(avro_schema, schema_id)
    schema.check()
    return PayloadFormat("avro", schema)


def is_payload(kind: Any) -> bool:
    """Whether cells of this Arrow type are bytes or text, so that they need no format."""
    import pyarrow as pa
    from pyarrow import types

    if isinstance(kind, pa.BaseExtensionType):
        return is_payload(kind.storage_type)
    if types.is_dictionary(kind):
        return is_payload(kind.value_type)
    plain = (
        types.is_binary,
        types.is_string,
        types.is_large_binary,
        types.is_large_string,
        types.is_binary_view,
        types.is_string_view,
        types.is_fixed_size_binary,
        types.is_null,
    )
    return any(is_kind(kind) for is_kind in plain)


def _bytes(role: str, column: Any) -> Any:
    if not is_payload(column.type):
        raise RecordTypeError(
            f"{role}: the column must be binary or text, not {column.type}: cast it, or say"
            f' {role}_format="json"'
        )
    return plain_values(column)


def plain_values(column: Any) -> Any:
    """The column without a dictionary or an extension type around its cells."""
    import pyarrow as pa

    if isinstance(column.type, pa.BaseExtensionType):
        return plain_values(column.storage)
    if pa.types.is_dictionary(column.type):
        return plain_values(column.dictionary_decode())
    return column
