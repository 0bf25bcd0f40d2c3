"""What is written: rows of random letters and digits, and the flights, kept as Parquet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kprod.cli.demo.flights import COUNT, NOT_AVAILABLE, Flights

FILES = 4
KEYS = 100_000
COPIES = 3
"""How often the flights are written, one set after the other."""


@dataclass(frozen=True, slots=True)
class Rows:
    """A DataFrame of ``key`` and ``value``, how many rows it has, and bytes of keys and values."""

    frame: Any
    count: int
    bytes: int


Made = Callable[[Any, Path, int], Any]


def synthetic(size: int) -> Made:
    """Rows with values of ``size`` hexadecimal digits, for ``KEYS`` keys."""
    digits = f"substr(repeat(sha2(cast(id as string), 512), {size // 128 + 1}), 1, {size})"

    def made(spark: Any, folder: Path, count: int) -> Any:
        return spark.range(0, count, 1, FILES).selectExpr(
            f"cast(id % {KEYS} as string) as key", f"cast({digits} as binary) as value"
        )

    return made


def flights(spark: Any, folder: Path, count: int) -> Any:
    """The flights as JSON, keyed by the aircraft, over again when there are not enough.

    Raises DemoFailure when the package with the flights is not installed.
    """
    found = Flights()
    file = folder / "flights.csv"
    found.write_csv(file)
    options = {"header": True, "inferSchema": True, "nullValue": NOT_AVAILABLE}
    fields = ", ".join(found.columns)
    return (
        spark.read.options(**options)
        .csv(str(file))
        .crossJoin(spark.range(0, -(-count // COUNT), 1, 1).withColumnRenamed("id", "copy"))
        .where(f"row + copy * {COUNT} < {count}")
        .selectExpr(
            "tailnum as key", f"cast(to_json(struct(row, {fields})) as binary) as value", "row"
        )
        .repartition(FILES, "key")
        .sortWithinPartitions("row")
        .drop("row")
    )


KINDS: dict[str, tuple[Made, int]] = {
    "synthetic-100": (synthetic(100), 2_000_000),
    "synthetic-1000": (synthetic(1_000), 500_000),
    "flights": (flights, COPIES * COUNT),
}
"""How rows are made, and how many of them are written when nothing else is said."""


def stored_rows(spark: Any, kind: str, count: int | None, folder: Path) -> Rows:
    """``count`` rows of a kind, kept in a folder as Parquet, and read from there by every way.

    They are written when the folder does not have them yet. None for ``count``: as many as is
    usual for the kind.
    """
    make, usual = KINDS[kind]
    count = count or usual
    path = folder / f"{kind}.parquet"
    if not path.exists():
        make(spark, folder, count).write.parquet(str(path))
    stored = spark.read.parquet(str(path))
    size = "sum(coalesce(octet_length(key), 0) + octet_length(value)) as size"
    told = stored.selectExpr("count(*) as count", size).first()
    assert told["count"] == count
    return Rows(stored, count, told["size"])
