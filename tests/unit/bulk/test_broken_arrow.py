"""Arrow data with invalid offsets, views or lengths, as a faulty library might export it."""

from __future__ import annotations

import ctypes
import struct
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from kprod.bulk.arrow_batches import ArrowBatches
from kprod.errors import InvalidRecordError

DATA = pa.py_buffer(b"A" * 64)
NO_COLUMNS = dict.fromkeys(("value", "key", "headers", "partition", "timestamp"))
PAIR = pa.struct([("name", pa.string()), ("value", pa.binary())])
PAIRS = pa.array([{"name": "n", "value": b"x"}], PAIR)
BROKEN = "an offset or a view of its value, key or headers is broken"


class Exported(NamedTuple):
    schema: Any
    array: Any

    def __arrow_c_array__(self) -> tuple[Any, Any]:
        return self


class ArrayHead(ctypes.Structure):
    """The C data interface's ArrowArray, up to its children."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("length", "null_count", "offset")),
        *((name, ctypes.c_int64) for name in ("n_buffers", "n_children")),
        ("buffers", ctypes.c_void_p),
        ("children", ctypes.POINTER(ctypes.POINTER(ctypes.c_int64))),
    )


class Columns:
    """Makes a batch whose invalid offsets are written after the checks of pyarrow."""

    def __init__(self) -> None:
        self._later: list[tuple[bytearray, bytes]] = []

    def binary(self, kind: Any, *offsets: int, valid: int | None = None) -> Any:
        """A cell between each two offsets; the bits of ``valid`` say which are not null."""
        nulls = None if valid is None else pa.py_buffer(bytes([valid]))
        memory = self._offsets("q" if kind == pa.large_binary() else "i", offsets)
        return pa.Array.from_buffers(kind, len(offsets) - 1, [nulls, memory, DATA])

    def headers(self, kind: Any, *offsets: int, items: Any = PAIRS) -> Any:
        """A list of the items between each two offsets."""
        memory = self._offsets("q" if pa.types.is_large_list(kind) else "i", offsets)
        return pa.Array.from_buffers(kind, len(offsets) - 1, [None, memory], children=[items])

    def _offsets(self, form: str, offsets: tuple[int, ...]) -> Any:
        packed = struct.pack(f"={len(offsets)}{form}", *offsets)
        memory = bytearray(len(packed))
        self._later.append((memory, packed))
        return pa.py_buffer(memory)

    def batches(self, *, shorten: bool = False, **columns: Any) -> ArrowBatches:
        """A batch of the columns; ``shorten``: the first has one cell too few."""
        rows = len(next(iter(columns.values())))
        batch = pa.record_batch({"value": pa.array([b"v"] * rows), **columns})
        exported = Exported(*batch.__arrow_c_array__())
        for memory, packed in self._later:
            memory[:] = packed
        if shorten:
            address = ctypes.pythonapi.PyCapsule_GetPointer
            address.restype, address.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
            head = ArrayHead.from_address(address(exported.array, b"arrow_array"))
            head.children[0][0] -= 1
        names = {name: name for name in batch.schema.names}
        return ArrowBatches("t", exported, {**NO_COLUMNS, **names})


def view(length: int, buffer: int, start: int) -> Any:
    array = pa.array([DATA.to_pybytes()], pa.binary_view())
    packed = struct.pack("=i4sii", length, b"AAAA", buffer, start)
    ctypes.memmove(array.buffers()[1].address, packed, len(packed))  # after pyarrow's checks
    return array


@pytest.mark.parametrize("column", ["key", "value"])
@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()], ids=str)
@pytest.mark.parametrize(
    ("offsets", "valid", "record"),
    [
        ((0, 32, 16), None, 1),
        ((0, 400, 64), 0b01, 1),  # the first cell ends where the null cell begins
        ((-8, 4), None, 0),
        ((-8, 4, 8), 0b10, 0),
    ],
)
def test_decreasing_offsets_are_refused(
    column: str, kind: Any, offsets: tuple[int, ...], valid: int | None, record: int
) -> None:
    columns = Columns()
    data = columns.batches(**{column: columns.binary(kind, *offsets, valid=valid)})
    with pytest.raises(InvalidRecordError, match=f"record {record}: {BROKEN}"):
        data.next()


@pytest.mark.parametrize(
    ("length", "buffer", "start"),
    [(20, 1, 0), (20, 5, 0), (20, -3, 0), (20, 0, -40), (20, 0, 45), (65, 0, 0), (-1, 0, 0)],
)
def test_views_outside_their_buffer_are_refused(length: int, buffer: int, start: int) -> None:
    data = Columns().batches(key=view(length, buffer, start))
    with pytest.raises(InvalidRecordError, match=f"record 0: {BROKEN}"):
        data.next()


@pytest.mark.parametrize(("length", "start"), [(64, 0), (20, 44), (13, 51), (12, 0), (0, 0)])
def test_views_up_to_the_end_of_their_buffer_are_read(length: int, start: int) -> None:
    assert Columns().batches(key=view(length, 0, start)).next()


@pytest.mark.parametrize("kind", [pa.list_(PAIR), pa.large_list(PAIR)], ids=str)
@pytest.mark.parametrize(
    ("offsets", "record"), [((0, 4), 0), ((0, 300_000_000), 0), ((-1, 1), 0), ((0, 1, 0), 1)]
)
def test_broken_header_lists_are_refused(kind: Any, offsets: tuple[int, ...], record: int) -> None:
    columns = Columns()
    data = columns.batches(headers=columns.headers(kind, *offsets))
    with pytest.raises(InvalidRecordError, match=f"record {record}: {BROKEN}"):
        data.next()


@pytest.mark.parametrize("number", [0, 1])
def test_header_names_and_values_with_decreasing_offsets_are_refused(number: int) -> None:
    columns = Columns()
    fields = [pa.array(["n"]), pa.array([b"x"])]
    fields[number] = columns.binary(pa.binary(), 8, 4).view(fields[number].type)
    items = pa.StructArray.from_arrays(fields, fields=list(PAIR))
    data = columns.batches(headers=columns.headers(pa.list_(PAIR), 0, 1, items=items))
    with pytest.raises(InvalidRecordError, match=f"record 0: {BROKEN}"):
        data.next()


def test_a_column_with_fewer_cells_than_the_batch_has_rows_is_refused() -> None:
    data = Columns().batches(shorten=True, key=pa.array([b"k", b"l"]))
    with pytest.raises(ValueError, match="fewer cells than its batch has rows"):
        data.next()
