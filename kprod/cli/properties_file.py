"""A file of options in Java's properties format, with secrets that are written elsewhere."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import typer

from kprod.errors import KprodError
from kprod.security import FromEnvironment, FromFile

_ELSEWHERE = re.compile(r"\$\{(env|file):([^}]+)\}")
_CONSUMERS = ("key.deserializer", "value.deserializer", "group.id", "auto.offset.reset")


def read_properties(path: Path, *, filled: bool = True) -> dict[str, str]:
    """Names and values; ``${env:NAME}`` and ``${file:PATH}`` stand for what is found there.

    They stay as they are unless ``filled``.

    Java's serializers of text and bytes are left away, for lines are bytes. Raises
    typer.BadParameter for a file that is not of that format.
    """
    import javaproperties

    try:
        with path.open(encoding="utf-8") as file:
            found: Mapping[str, str] = javaproperties.load(file)
        kept = {name: value for name, value in found.items() if not _java_only(name)}
        return {name: _filled(value) for name, value in kept.items()} if filled else kept
    except (OSError, ValueError, KprodError) as error:
        raise typer.BadParameter(f"--config: {error}") from error


def _java_only(name: str) -> bool:
    return name in ("key.serializer", "value.serializer", *_CONSUMERS)


def _filled(value: str) -> str:
    def told(match: re.Match[str]) -> str:
        kind, where = match.groups()
        return (FromEnvironment(where) if kind == "env" else FromFile(where))()

    return _ELSEWHERE.sub(told, value)
