"""Encodes each cell of an Arrow column with a schema."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from kprod.errors import KprodError, SerializationError
from kprod.schema.columns.arrow_types import plain_values, python_cells
from kprod.schema.columns.avro_columns import avro_encoder
from kprod.schema.columns.json_texts import json_writer
from kprod.schema.columns.protobuf_columns import check_message
from kprod.schema.encoding import AvroEncoding, Encode, Encoding, JsonEncoding, ProtobufEncoding

Encoded: TypeAlias = tuple[Any, Mapping[int, KprodError]]
"""A column of bytes or text, and the error of each row that could not be encoded."""
Convert: TypeAlias = Callable[[Any], Encoded]
"""Null stays null, and a row that could not be encoded becomes null."""


@dataclass(frozen=True, slots=True)
class EncodedColumns:
    """Encodes columns with one schema, with ``prefix`` before each value. Immutable, picklable."""

    encoding: Encoding
    prefix: bytes = b""

    def converter(self, kind: Any) -> Convert:
        """A function that encodes columns of a type. Raises RecordTypeError for other types."""
        encoding, prefix = self.encoding, self.prefix
        if isinstance(encoding, AvroEncoding):
            avro = avro_encoder(encoding, kind)
            return lambda column: avro.encode(column, prefix)
        if isinstance(encoding, JsonEncoding):
            write, from_text = json_writer(kind), encoding.text_encoder(prefix)
            return lambda column: _each(write(column).to_pylist(), from_text)
        if isinstance(encoding, ProtobufEncoding):
            check_message(encoding.message_class().DESCRIPTOR, kind)
        encode = encoding.encoder(prefix)
        return lambda column: _each(python_cells(plain_values(column)), encode)


LONGEST_TEXT = 500


def in_short(error: BaseException) -> str:
    """The text of an error, or its beginning: libraries add the whole schema and value."""
    text = str(error)
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}..."


def _each(cells: Iterable[Any], encode: Encode) -> Encoded:
    """Encode the cells one by one. An exception in place of a cell becomes the error of its row."""
    encoded: list[bytes | None] = []
    faults: dict[int, KprodError] = {}
    for row, cell in enumerate(cells):
        data = None
        try:
            if isinstance(cell, Exception):
                raise cell
            data = None if cell is None else encode(cell)
        except Exception as error:  # whatever the format's library raises
            faults[row] = SerializationError(
                f"the value does not fit the schema: {type(error).__name__}: {in_short(error)}"
            )
        encoded.append(data)
    return pa.array(encoded, pa.large_binary()), faults
