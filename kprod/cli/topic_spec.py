"""``NAME:PARTITIONS`` as the command line takes it."""

from __future__ import annotations

import typer


def parse_topics(specs: list[str]) -> dict[str, int]:
    """Partitions by topic. Raises typer.BadParameter for what is not ``NAME`` or ``NAME:COUNT``."""
    return dict(map(_parse, specs))


def _parse(spec: str) -> tuple[str, int]:
    name, colon, count = spec.partition(":")
    if not name or (colon and not (count.isdecimal() and int(count) > 0)):
        raise typer.BadParameter(f"expected NAME:PARTITIONS, as in flights:6; got {spec!r}")
    return name, int(count) if colon else 1
