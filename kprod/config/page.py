"""The documentation page of the options, written from the table itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kprod.config.foreign_options import IGNORED, UNAVAILABLE, UNAVAILABLE_FAMILIES
from kprod.config.option import Option
from kprod.config.table import OPTIONS

_INTRODUCTION = """\
# Configuration

Options are keyword arguments of `KafkaProducer`. Each has Kafka's own term as its name, spelled
with underscores as in kafka-python. The name with dots (`batch.size`) and the spellings of other
clients work too: `KafkaProducer(**{"batch.size": 1000})`. All problems with the options are
reported by one `ConfigError`, before any thread is started or any connection made.

This page is written by `python -m kprod.config`.
"""
_FOREIGN = """\
## Options of other clients

Refused, because a program that sets them relies on what they do. None, and the defaults of
kafka-python, are taken as "not used":
"""
_HARMLESS = "Accepted without effect, with a warning in the log:\n"


def page() -> str:
    """The whole page, Markdown, ending in a newline."""
    refused = {**{f"{family}*": why for family, why in UNAVAILABLE_FAMILIES.items()}, **UNAVAILABLE}
    parts = (
        _INTRODUCTION,
        *(_section(option) for option in OPTIONS.values()),
        _FOREIGN,
        _listing(refused),
        _HARMLESS,
        _listing(IGNORED),
    )
    return "\n".join(parts)


def _section(option: Option) -> str:
    return "\n".join(_lines(option))


def _lines(option: Option) -> Iterator[str]:
    yield f"## `{option.name}`\n"
    yield f"{option.doc}\n"
    yield f"- type: {option.kind.type_name}"
    yield f"- accepts: {option.kind.expected}"
    yield f"- default: `{option.default!r}`"
    if option.aliases:
        yield f"- also called: {_quoted(option.aliases)}"
    yield f"- since: {option.since}"
    yield ""


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _listing(reasons: Mapping[str, str]) -> str:
    """One line per reason, with every option it holds for."""
    names: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        names.setdefault(reason, []).append(name)
    return "".join(f"- {_quoted(group)}: {reason}.\n" for reason, group in names.items())
