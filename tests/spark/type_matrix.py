"""Every Spark type in JSON and Avro, compared with Spark's own output.

``python -m tests.spark.type_matrix [KIND...]`` prints the differences, and exits with 1 if there
are some. kprod must write what ``to_json`` and ``to_avro`` write, or refuse the type or the row.
"""

from __future__ import annotations

import json
import os
import re
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, types
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import to_avro

from kprod.errors import KprodError
from kprod.spark.errors import SchemaError
from kprod.spark.partition_writer import PartitionWriter, task_writer
from kprod.spark.schema_check import check_schema
from tests.spark.driver_process import SETTINGS
from tests.spark.type_values import KINDS
from tests.support.spark_avro import jar

ROOT = Path(__file__).parents[2]
SESSION_ZONES = ("America/New_York", "Asia/Kathmandu")
WORKER_ZONES = ("UTC", "Pacific/Auckland")
NESTS = {
    "itself": "{0}",
    "array": "array({0}, null)",
    "items": "if({0} is null, array(), array({0}))",
    "map": "map('k', {0})",
    "key": "if({0} is null, null, map({0}, 1))",
    "struct": "named_struct('y', {0})",
}
NO_KEYS = ("variant", "void")
"""Kinds that Spark does not allow as map keys."""
FLOAT = re.compile(r"-?\d+\.\d+(?:E-?\d+)?")
FLOATING = {"float": "f", "double": "d", "variant": "d"}
"""Java 17 writes more digits of some floats than necessary."""
OUTCOME = "cell int, row int, data binary, fault string"


@dataclass
class Cell:
    """One kind in one nest and one format: JSON, or Avro with ``schema``."""

    kind: str
    nest: str
    schema: str | None
    writer: PartitionWriter
    is_refused: bool = False
    written: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def column(self) -> str:
        """Its column in the frame, a struct with the field ``x``."""
        return f"{self.kind}/{self.nest}"


class Refused(NamedTuple):
    """Spark refuses to write the column."""

    why: str


def avro_schema(nest: str, leaf: Any) -> str:
    """A record with the field ``x``, which holds ``leaf`` or null in its nest."""
    leaf = ["null", leaf]
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "y", "type": leaf}]}
    within = {
        "itself": leaf,
        "array": {"type": "array", "items": leaf},
        "items": {"type": "array", "items": leaf},
        "map": {"type": "map", "values": leaf},
        "key": ["null", {"type": "map", "values": ["null", "int"]}],
        "struct": inner,
    }[nest]
    fields = [{"name": "x", "type": within}]
    return json.dumps({"type": "record", "name": "Row", "fields": fields})


def cells(kind: str, nest: str) -> Iterator[Cell]:
    def cell(schema: str | None = None, **options: Any) -> Cell:
        writer = task_writer("t", bootstrap_servers="127.0.0.1:1", **options)
        return Cell(kind, nest, schema, writer)

    yield cell(value_format="json")
    for leaf in KINDS[kind].avro[: 1 if nest == "key" else None]:
        schema = avro_schema(nest, leaf)
        yield cell(schema, value_format="avro", avro_schema=schema)


def frame(spark: SparkSession, kinds: Iterable[str]) -> DataFrame:
    """A row for each value and one of nulls; a column for each kind in each nest."""
    kinds = tuple(kinds)
    rows = 1 + max(len(KINDS[kind].values) for kind in kinds)
    base = spark.range(0, rows, 1, 1)
    made = []
    for kind in kinds:
        values = KINDS[kind].values
        padded = ", ".join((*values, *["null"] * (rows - len(values))))
        value = f"element_at(array({padded}), cast(id + 1 as int))" if kind != "void" else "null"
        base = base.withColumn(kind, F.expr(value))
    for kind in kinds:
        for nest, shape in NESTS.items():
            if nest != "key" or kind not in NO_KEYS:
                text = f"named_struct('x', {shape.format(f'`{kind}`')})"
                made.append(F.expr(text).alias(f"{kind}/{nest}"))
    return base.select("id", *made)


def check_on_driver(cell: Cell, kind: types.DataType) -> None:
    assert isinstance(kind, types.StructType)
    try:
        check_schema(kind, cell.writer)
    except SchemaError:
        cell.is_refused = True


def convert(jobs: list[tuple[int, str, PartitionWriter]]) -> Callable[[Any], Iterator[Any]]:
    def run(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            rows = batch.column("id").to_pylist()
            for number, name, writer in jobs:
                made = converted(batch.column(name), writer)
                yield pa.RecordBatch.from_arrays(
                    [
                        pa.array([number] * len(rows), pa.int32()),
                        pa.array(rows, pa.int32()),
                        pa.array([data for data, _ in made], pa.binary()),
                        pa.array([fault for _, fault in made], pa.string()),
                    ],
                    ["cell", "row", "data", "fault"],
                )

    return run


def converted(column: Any, writer: PartitionWriter) -> list[tuple[bytes | None, str | None]]:
    """The bytes of each row, or the error."""
    try:
        out, faults = writer.plan.value.converter("value", column.type)(column)
    except KprodError as error:
        return [(None, str(error))] * len(column)
    found = out.cast(pa.large_binary()).to_pylist()
    return [(data, str(faults[at]) if at in faults else None) for at, data in enumerate(found)]


class SparkOutput:
    """The columns of a frame as Spark writes them, computed in few jobs."""

    def __init__(self, frame: DataFrame, cells: Iterable[Cell]) -> None:
        wanted: dict[tuple[str, str | None], Any] = {}
        for cell in cells:
            column = F.col(f"`{cell.column}`")
            made = F.to_json(column) if cell.schema is None else to_avro(column, cell.schema)
            wanted[cell.column, cell.schema] = made
        self._known: dict[tuple[str, str | None], list[Any] | Refused] = {}
        self._compute(frame, list(wanted.items()))

    def _compute(self, frame: DataFrame, wanted: list[tuple[tuple[str, str | None], Any]]) -> None:
        """All at once; when Spark refuses, each half separately."""
        named = [column.alias(str(number)) for number, (_, column) in enumerate(wanted)]
        try:
            rows = frame.select("id", *named).orderBy("id").collect()
        except Exception as error:
            if len(wanted) == 1:
                self._known[wanted[0][0]] = Refused(str(error).splitlines()[0])
                return
            half = len(wanted) // 2
            self._compute(frame, wanted[:half])
            self._compute(frame, wanted[half:])
        else:
            for number, (key, _) in enumerate(wanted):
                self._known[key] = [row[number + 1] for row in rows]

    def difference(self, cell: Cell, row: int, data: bytes) -> str | None:
        """How the bytes of a row differ from Spark's; None if they do not."""
        wanted = self._known[cell.column, cell.schema]
        if cell.schema is not None:
            if isinstance(wanted, Refused) or data == bytes(wanted[row]):
                return None  # kprod writes integers into smaller types, which Spark does not
            return f"{data.hex()}, not {bytes(wanted[row]).hex()}"
        text = data.decode()
        if isinstance(wanted, Refused):
            return f"{text}, which to_json refuses: {wanted.why}"
        form = FLOATING.get(cell.kind)
        if text == wanted[row] or (form and _bits(text, form) == _bits(wanted[row], form)):
            return None
        return f"{text}, not {wanted[row]}"


def _bits(text: str, form: str) -> str:
    """The text with its floats replaced by their bits."""
    return FLOAT.sub(lambda found: struct.pack(form, float(found[0])).hex(), text)


def compared(spark: SparkSession, kinds: Iterable[str]) -> list[Cell]:
    kinds = tuple(kinds)
    every: list[Cell] = []
    for session_zone in SESSION_ZONES:
        spark.conf.set("spark.sql.session.timeZone", session_zone)
        made = frame(spark, kinds)
        if not every:
            for name in made.columns[1:]:
                kind, _, nest = name.rpartition("/")
                every += cells(kind, nest)
            for cell in every:
                check_on_driver(cell, made.schema[cell.column].dataType)
        accepted = [cell for cell in every if not cell.is_refused]
        jobs = [(number, cell.column, cell.writer) for number, cell in enumerate(accepted)]
        output = SparkOutput(made, accepted)
        used = sorted({cell.column for cell in accepted})
        chosen = made.select("id", *(F.col(f"`{name}`") for name in used))
        for worker_zone in WORKER_ZONES:
            spark.sparkContext.environment["TZ"] = worker_zone
            for number, row, data, fault in chosen.mapInArrow(convert(jobs), OUTCOME).collect():
                if fault is not None:
                    continue
                cell = accepted[number]
                cell.written += 1
                if problem := output.difference(cell, row, bytes(data or b"")):
                    where = f"{cell.column}, {cell.schema or 'JSON'}, row {row}"
                    cell.problems.append(f"{where} ({session_zone}, {worker_zone}): {problem}")
    return every


def session() -> SparkSession:
    """One worker, whose Python is this one, with Spark's Avro functions."""
    os.environ.update(PYSPARK_PYTHON=sys.executable, TZ="UTC", PYTHONPATH=str(ROOT))
    builder = SparkSession.Builder().master("local[1]").appName("type matrix")
    for name, value in {
        "spark.jars": str(jar()),
        "spark.driver.extraClassPath": str(jar()),
        **SETTINGS,
        "spark.log.level": "OFF",
        "spark.sql.timeType.enabled": "true",
        # Hundreds of expressions run once each: compiling them would take longer.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.ui.showConsoleProgress": "false",
    }.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main(names: list[str]) -> int:
    """Try these kinds, or all; returns the exit code."""
    spark = session()
    try:
        found = compared(spark, names or KINDS)
    finally:
        spark.stop()
    for cell in found:
        print(*cell.problems[:1], sep="\n")
    refused = sum(cell.is_refused for cell in found)
    written = sum(cell.written for cell in found)
    print(f"{len(found)} cells, {refused} of them refused; {written} values written")
    return 1 if not written or any(cell.problems for cell in found) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
