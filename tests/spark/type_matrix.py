"""Every Spark type in every format, nested, with extremes, in several zones, beside Spark's own

``python -m tests.spark.type_matrix [KIND...]`` prints a table and the differences, and exits with 1
if there are some. What kprod writes has to be what ``to_json`` and ``to_avro`` write; where those
refuse, and for Protobuf, confluent-kafka's deserializers have to find the value that Spark
collects. A serializer has to get that value, too. Anything else has to be refused: on the driver,
or as a row that does not fit.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import struct
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import DataFrame, SparkSession, types
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import to_avro

from kprod.errors import KprodError
from kprod.schema.columns.arrow_types import python_cells
from kprod.spark.errors import SchemaError
from kprod.spark.partition_writer import PartitionWriter, task_writer
from kprod.spark.schema_check import check_schema
from tests.spark.type_values import KINDS
from tests.support.all_fields import Fields
from tests.support.schema_registry import FakeRegistry
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
"""Kinds that Spark takes for no key of a map."""
PROTO = {
    "itself": ("{0}",),
    "items": ("list_{0}",),
    "map": ("map_{0}",),
    "struct": ("inner", "{0}"),
}
"""Where a Protobuf field is in its message, by its kind; repeated fields hold no null."""
FLOAT = re.compile(r"-?\d+\.\d+(?:E-?\d+)?")
FLOATING = {"float": "f", "double": "d", "variant": "d"}
"""Java 17 writes more digits of some floats than they need: the text may be another one."""
CONTEXT = SerializationContext("t", MessageField.VALUE)
OUTCOME = "cell int, row int, data binary, fault string"


@dataclass
class Cell:
    """One kind in one nest and one format."""

    kind: str
    nest: str
    form: str
    writer: PartitionWriter
    read: Callable[[bytes], Any] | None = None  # by confluent-kafka, with the schema's id
    schema: Any = None  # of Avro
    names: tuple[str, ...] = ()  # of Protobuf
    refusal: str | None = None
    problems: list[str] = field(default_factory=list)
    written: int = 0
    rejected: int = 0

    @property
    def column(self) -> str:
        """Its column in the frame, a struct with the field ``x``."""
        return f"{self.kind}/{self.nest}"

    @property
    def verdict(self) -> str:
        if self.problems:
            return "other"
        return "refused" if self.refusal is not None or not self.written else "equal"


class Refused(NamedTuple):
    """What Spark itself does not write."""

    why: str


def avro_schema(nest: str, leaf: Any) -> Any:
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
    return {"type": "record", "name": "Row", "fields": [{"name": "x", "type": within}]}


def cells(kind: str, nest: str, registry: FakeRegistry) -> Iterator[Cell]:
    """All formats of a kind in a nest."""

    def cell(form: str, options: dict[str, Any], read: Any = None, **more: Any) -> Cell:
        writer = task_writer("t", bootstrap_servers="127.0.0.1:1", **options)
        read = read and partial(read, ctx=CONTEXT)
        return Cell(kind, nest, form, writer, read, **more)

    named = {"subject": "matrix", "schema_registry": registry.url}
    yield cell("json", {"value_format": "json"})
    with_schema = {"value_format": "json_schema", "json_schema": "{}", **named}
    yield cell("json_schema", with_schema, JSONDeserializer("{}"))
    yield cell("rows", {"value_serializer": repr})
    client = SchemaRegistryClient({"url": registry.url})
    for leaf in KINDS[kind].avro[: 1 if nest == "key" else None]:
        schema = avro_schema(nest, leaf)
        options = {"value_format": "avro", "avro_schema": json.dumps(schema)}
        yield cell(f"avro {_short(leaf)}", options, AvroDeserializer(client), schema=schema)
    for name in KINDS[kind].proto if nest in PROTO else ():
        names = tuple(each.format(name) for each in PROTO[nest])
        message = {"value_format": "protobuf", "protobuf_message": Fields, **named}
        reader = ProtobufDeserializer(Fields, {"use.deprecated.format": False})
        yield cell(f"protobuf {name}", message, reader, names=names)


def _short(leaf: Any) -> str:
    return leaf if isinstance(leaf, str) else f"{leaf['type']}-{leaf.get('logicalType', '')}"


def frame(spark: SparkSession, kinds: Iterable[str]) -> DataFrame:
    """A row for each value and one of nulls; a column for each kind in each nest."""
    kinds = tuple(kinds)
    rows = 1 + max(len(KINDS[kind].near + KINDS[kind].far) for kind in kinds)
    base = spark.range(0, rows, 1, 1)
    made = []
    for kind in kinds:
        values = KINDS[kind].near + KINDS[kind].far
        padded = ", ".join((*values, *["null"] * (rows - len(values))))
        value = f"element_at(array({padded}), cast(id + 1 as int))" if kind != "void" else "null"
        base = base.withColumn(kind, F.expr(value))
    for kind in kinds:
        for nest, shape in NESTS.items():
            if nest != "key" or kind not in NO_KEYS:
                text = f"named_struct('x', {shape.format(f'`{kind}`')})"
                made.append(F.expr(text).alias(f"{kind}/{nest}"))
    return base.select("id", *made)


def judge_on_driver(cell: Cell, kind: types.DataType) -> None:
    """Let the driver refuse the cell."""
    assert isinstance(kind, types.StructType)
    if cell.form == "rows":
        schema = types.StructType([types.StructField("value", kind)])
    else:
        schema = _renamed_type(kind, cell.names) if cell.names else kind
    try:
        check_schema(schema, cell.writer)
    except SchemaError as error:
        cell.refusal = str(error)


def _renamed_type(kind: types.StructType, names: tuple[str, ...]) -> types.StructType:
    inner = kind[0].dataType
    if len(names) > 1:
        assert isinstance(inner, types.StructType)
        inner = _renamed_type(inner, names[1:])
    return types.StructType([types.StructField(names[0], inner)])


Job = tuple[int, str, tuple[str, ...], PartitionWriter, bool]


def convert(jobs: list[Job]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """For ``mapInArrow``: what tasks make of the cells."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            rows = batch.column("id").to_pylist()
            for number, name, names, writer, by_row in jobs:
                column = batch.column(name)
                column = renamed(column, names) if names else column
                made = objects(column) if by_row else converted(column, writer)
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


Made = list[tuple[bytes | None, str | None]]
"""What was written for each row, or why nothing was."""


def objects(column: Any) -> Made:
    """The texts of the Python objects that a serializer gets."""
    return [
        (None, str(value)) if isinstance(value, Exception) else (repr(plain(value)).encode(), None)
        for value in python_cells(column)
    ]


def converted(column: Any, writer: PartitionWriter) -> Made:
    """The bytes of a format."""
    try:
        out, faults = writer.plan.value.converter("value", column.type)(column)
    except KprodError as error:
        return [(None, str(error))] * len(column)
    cells = out.cast(pa.large_binary()).to_pylist()
    return [(data, str(faults[at]) if at in faults else None) for at, data in enumerate(cells)]


def renamed(column: Any, names: tuple[str, ...]) -> Any:
    """A struct of one field, and of one within it, by other names."""
    (child,) = column.flatten()
    return pa.StructArray.from_arrays(
        [renamed(child, names[1:]) if len(names) > 1 else child], [names[0]]
    )


def plain(value: Any) -> Any:
    """A Python value as one may compare it: moments in UTC, no difference between bytes."""
    if isinstance(value, dict):
        return {plain(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.UTC).replace(tzinfo=None)
    return value


class Judge:
    """What Spark itself makes of the columns of a frame, asked in as few jobs as may be."""

    def __init__(self, frame: DataFrame, cells: Iterable[Cell]) -> None:
        wanted: dict[tuple[str, str], Any] = {}
        for cell in cells:
            column = F.col(f"`{cell.column}`")
            wanted["json", cell.column] = F.to_json(column)
            wanted["python", cell.column] = F.when(~_is_far(cell.kind), column)
            if cell.schema is not None:
                text = json.dumps(cell.schema)
                wanted[text, cell.column] = to_avro(column, text)
        self._known: dict[tuple[str, str], list[Any] | Refused] = {}
        self._ask(frame, list(wanted.items()))

    def _ask(self, frame: DataFrame, wanted: list[tuple[tuple[str, str], Any]]) -> None:
        """All at once; when Spark refuses, each half by itself."""
        named = [column.alias(str(number)) for number, (_, column) in enumerate(wanted)]
        try:
            rows = frame.select("id", *named).orderBy("id").collect()
        except Exception as error:
            if len(wanted) == 1:
                self._known[wanted[0][0]] = Refused(str(error).splitlines()[0])
                return
            half = len(wanted) // 2
            self._ask(frame, wanted[:half])
            self._ask(frame, wanted[half:])
        else:
            for number, (key, _) in enumerate(wanted):
                self._known[key] = [row[number + 1] for row in rows]

    def json(self, cell: Cell) -> list[Any] | Refused:
        return self._known["json", cell.column]

    def avro(self, cell: Cell) -> list[Any] | Refused:
        return self._known[json.dumps(cell.schema), cell.column]

    def python(self, cell: Cell) -> list[Any] | Refused:
        """The values, but for those that Python does not have."""
        found = self._known["python", cell.column]
        if isinstance(found, Refused):
            return found
        return [None if row is None else plain(row.asDict(True)) for row in found]


def _is_far(kind: str) -> Any:
    near = len(KINDS[kind].near)
    return F.col("id").between(near, near + len(KINDS[kind].far) - 1)


def compare(cell: Cell, row: int, data: bytes, judge: Judge, registry: FakeRegistry) -> str | None:
    """What is wrong with the bytes of a row; None if nothing is."""
    if cell.form.startswith("json"):
        return _compare_json(cell, row, data, judge.json(cell))
    if cell.schema is not None:
        wanted = judge.avro(cell)
        if not isinstance(wanted, Refused):
            return None if data == bytes(wanted[row]) else f"{data.hex()}, not {wanted[row].hex()}"
        number = registry.register("matrix", {"schema": json.dumps(cell.schema)})
        data = struct.pack(">bI", 0, number) + data
    expected = judge.python(cell)
    if isinstance(expected, Refused) or expected[row] is None:
        return f"{data!r}, which no judge knows"
    if cell.read is None:
        return None if data.decode() == repr(expected[row]) else f"{data!r}, not {expected[row]!r}"
    value, read = expected[row]["x"], cell.read(data)
    if cell.schema is not None:
        read = plain(read)["x"]
    else:
        read = _unset(_message_value(read, cell.names))
        value = _unset(value["y"] if cell.nest == "struct" and value else value)
    return None if _same(read, value) else f"{read!r}, not {value!r}"


def _compare_json(cell: Cell, row: int, data: bytes, wanted: list[Any] | Refused) -> str | None:
    encoded = cell.writer.plan.value.encoded
    text = (data if encoded is None else data.removeprefix(encoded.prefix)).decode()
    if cell.read is not None:
        cell.read(data)  # raises for what is no message; the text tells digits that it drops
    if isinstance(wanted, Refused):
        return f"{text}, which to_json refuses: {wanted.why}"
    if text == wanted[row]:
        return None
    form = FLOATING.get(cell.kind)
    if form is not None and _as_numbers(text, form) == _as_numbers(wanted[row], form):
        return None
    return f"{text}, not {wanted[row]}"


def _as_numbers(text: str, form: str) -> str:
    """The text with the bits of its floats in their places."""
    return FLOAT.sub(lambda found: struct.pack(form, float(found[0])).hex(), text)


def _message_value(message: Any, names: tuple[str, ...]) -> Any:
    for name in names:
        message = getattr(message, name)
    if hasattr(message, "items"):
        return {key: _scalar(one) for key, one in message.items()}
    if hasattr(message, "append") or hasattr(message, "add"):
        return [_scalar(one) for one in message]
    return _scalar(message)


def _scalar(value: Any) -> Any:
    if hasattr(value, "ToDatetime"):
        return value.ToDatetime()
    return value.ToTimedelta() if hasattr(value, "ToTimedelta") else value


def _unset(value: Any) -> Any:
    """Null and what a message has instead are one."""
    nothing = (None, 0, "", b"", False, datetime.datetime(1970, 1, 1), datetime.timedelta(0))
    return None if not isinstance(value, list | dict) and value in nothing else value


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return one == other or repr(one) == repr(other)


def tried(spark: SparkSession, kinds: Iterable[str], registry: FakeRegistry) -> list[Cell]:
    """All cells, judged in all zones."""
    kinds = tuple(kinds)
    found: dict[str, list[Cell]] = {}
    for session_zone in SESSION_ZONES:
        spark.conf.set("spark.sql.session.timeZone", session_zone)
        made = frame(spark, kinds)
        if not found:
            for name in made.columns[1:]:
                kind, _, nest = name.rpartition("/")
                found[name] = list(cells(kind, nest, registry))
                for cell in found[name]:
                    judge_on_driver(cell, made.schema[name].dataType)
        every = [cell for column in found.values() for cell in column]
        jobs = [
            (number, cell.column, cell.names, cell.writer, cell.form == "rows")
            for number, cell in enumerate(every)
            if cell.refusal is None
        ]
        used = sorted({name for _, name, _, _, _ in jobs})
        judge = Judge(made, [cell for cell in every if cell.refusal is None])
        for worker_zone in WORKER_ZONES:
            spark.sparkContext.environment["TZ"] = worker_zone
            chosen = made.select("id", *(F.col(f"`{name}`") for name in used))
            for number, row, data, fault in chosen.mapInArrow(convert(jobs), OUTCOME).collect():
                cell, zones = every[number], f"{session_zone}, {worker_zone}"
                if fault is not None:
                    cell.rejected += 1
                    continue
                cell.written += 1
                problem = compare(cell, row, bytes(data or b""), judge, registry)
                if problem is not None:
                    text = f"{cell.column}, {cell.form}, row {row} ({zones}): {problem}"
                    cell.problems.append(text)
    return [cell for column in found.values() for cell in column]


def report(found: list[Cell]) -> int:
    """Print the table; the number of cells that are neither equal nor refused."""
    forms = ("json", "json_schema", "rows", "avro", "protobuf")
    print(f"{'equal/refused/other':26}" + "".join(f"{form:>14}" for form in forms))
    for kind in dict.fromkeys(cell.kind for cell in found):
        counts = {form: Counter[str]() for form in forms}
        for cell in found:
            if cell.kind == kind:
                counts[cell.form.split()[0]][cell.verdict] += 1
        shown = (f"{c['equal']}/{c['refused']}/{c['other']}" for c in counts.values())
        print(f"{kind:26}" + "".join(f"{each:>14}" for each in shown))
    total = Counter(cell.verdict for cell in found)
    for cell in found:
        for problem in cell.problems[:1]:
            print("OTHER", problem)
    rejected = sum(cell.rejected for cell in found)
    written = sum(cell.written for cell in found)
    print(f"{written} values are as Spark has them or are listed above, {rejected} were rejected")
    print(f"cells: {total['equal']} equal, {total['refused']} refused, {total['other']} other")
    return total["other"]


def session() -> SparkSession:
    """One worker, whose Python is this one, with Spark's Avro functions."""
    os.environ.update(PYSPARK_PYTHON=sys.executable, TZ="UTC", PYTHONPATH=str(ROOT))
    builder = SparkSession.Builder().master("local[1]").appName("type matrix")
    for name, value in {
        "spark.jars": str(jar()),
        "spark.driver.extraClassPath": str(jar()),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.log.level": "OFF",
        "spark.sql.timeType.enabled": "true",
        # Hundreds of expressions run once each: compiling them takes longer than all the rest.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.ui.showConsoleProgress": "false",
    }.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main(names: list[str]) -> int:
    """Try these kinds, or all; returns the exit code."""
    spark = session()
    try:
        with FakeRegistry() as fake:
            found = tried(spark, names or KINDS, fake)
    finally:
        spark.stop()
    return 1 if report(found) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
