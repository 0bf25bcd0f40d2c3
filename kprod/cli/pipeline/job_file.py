"""A pipeline as a TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

TABLES: Mapping[str, Mapping[str, str]] = {
    "read": {
        "path": "path",
        "format": "format",
        "table": "table",
        "query": "query",
        "options": "read_options",
        "schema": "schema",
        "stream": "stream",
        "checkpoint": "checkpoint",
        "trigger": "trigger",
    },
    "transform": {"sql": "sql"},
    "spark": {"master": "master", "conf": "spark_conf"},
}
"""The fields of a Pipeline by the tables and keys of the file."""

DIRECT = ("topic", "bootstrap_servers")  # of [write]; what else is there goes to the writer


def read_job(path: Path) -> dict[str, Any]:
    """The fields of the Pipeline that the file describes.

    Tables are ``[read]``, ``[transform]``, ``[write]`` (options of ``kprod.spark.write``),
    ``[kafka]`` (options of the producer) and ``[spark]``. Raises typer.BadParameter for a file that
    is not of that kind, naming what it does not know.
    """
    try:
        with path.open("rb") as file:
            told = tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise typer.BadParameter(f"{path}: {error}") from error
    unknown = sorted(set(told) - set(TABLES) - {"write", "kafka"})
    if unknown:
        raise typer.BadParameter(f"{path}: there is no table {unknown} in a pipeline")
    fields: dict[str, Any] = {}
    for table, keys in TABLES.items():
        for key, value in told.get(table, {}).items():
            if key not in keys:
                raise typer.BadParameter(f"{path}: [{table}] has no {key!r}; it has {sorted(keys)}")
            fields[keys[key]] = value
    written = dict(told.get("write", {}))
    fields |= {name: written.pop(name) for name in DIRECT if name in written}
    fields["options"] = {**written, **told.get("kafka", {})}
    return fields
