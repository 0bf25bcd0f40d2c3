"""Avro of a whole Arrow column, framed as Confluent's deserializers expect it."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from kprod.errors import ConfigError, SerializationError

MAGIC = 0  # the first byte of Confluent's wire format; the schema's number follows, in four bytes


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """The schema to write with, as JSON text, and its number in the registry. Immutable.

    ``schema_id`` None: the bytes begin with the data, without a frame.
    """

    text: str
    schema_id: int | None

    def check(self) -> None:
        """Raises ConfigError when it is no Avro schema, or fastavro is not installed."""
        self._parsed()

    def encode(self, column: Any) -> tuple[Any, Mapping[int, SerializationError]]:
        """The column as ``large_binary``, and why rows of it could not be written, by number.

        Null stays null, as do the rows that could not be written.
        """
        import pyarrow as pa
        from fastavro import schemaless_writer

        schema, frame = self._parsed(), self._frame()
        cells: list[bytes | None] = []
        faults: dict[int, SerializationError] = {}
        for row, cell in enumerate(column.to_pylist()):
            if cell is None:
                cells.append(None)
                continue
            buffer = BytesIO()
            buffer.write(frame)
            try:
                schemaless_writer(buffer, schema, cell)
                cells.append(buffer.getvalue())
            except Exception as error:  # whatever fastavro raises for data of another shape
                faults[row] = SerializationError(
                    f"the value does not fit the Avro schema: {type(error).__name__}: {error}"
                )
                cells.append(None)
        return pa.array(cells, pa.large_binary()), faults

    def _frame(self) -> bytes:
        return b"" if self.schema_id is None else struct.pack(">bI", MAGIC, self.schema_id)

    def _parsed(self) -> Any:
        try:
            from fastavro import parse_schema
        except ImportError as error:
            raise ConfigError(
                "value_format avro needs fastavro: pip install 'kprod[avro]'"
            ) from error
        try:
            return parse_schema(json.loads(self.text))
        except Exception as error:  # a JSON error, or one of fastavro's many
            raise ConfigError(f"avro_schema: {type(error).__name__}: {error}") from error
