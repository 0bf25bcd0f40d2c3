"""What is written from the table of options: the page about them, the module of their types."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kprod.config import option_types
from kprod.config.foreign_options import IGNORED, UNAVAILABLE, UNAVAILABLE_FAMILIES
from kprod.config.kinds import (
    PARTITIONERS,
    SERIALIZERS,
    Choice,
    PartitionerPlugin,
    SerializerPlugin,
    WholeNumber,
)
from kprod.config.option import Option
from kprod.config.table import GROUPS, OPTIONS

_WRITTEN_BY = "Written by `python -m tools.pages`; do not edit it here.\n"
_INTRODUCTION = f"""\
# Configuration

Options are keyword arguments of `KafkaProducer`. Each has Kafka's own term as its name, spelled
with underscores as in kafka-python. The name with dots (`batch.size`) and the spellings of other
clients work too: `KafkaProducer(**{{"batch.size": 1000}})`. One `ConfigError` reports all problems
with the options, before any thread is started or any connection made.

{_WRITTEN_BY}"""
_TITLES = {
    "delivery": "## Records and their delivery\n",
    "connections": "## Connections, metrics, and the end of a process\n",
    "security": """\
## TLS, logins and proxies

[Security](security.md) says how these options work together.
""",
}
_FOREIGN = """\
## Options of other clients

These are refused, because a program that sets them relies on what they do. None, and the defaults
of kafka-python, are taken as "not used":
"""
_HARMLESS = "These are accepted without effect, with a warning in the log:\n"


def configuration_page() -> str:
    """Markdown, ending in a newline."""
    parts = ("\n".join([_TITLES[group], *map(_section, rows)]) for group, rows in GROUPS.items())
    return "\n".join([_INTRODUCTION, *parts, *_foreign()])


def _foreign() -> tuple[str, ...]:
    """The options that kprod does not have."""
    refused = {**{f"{family}*": why for family, why in UNAVAILABLE_FAMILIES.items()}, **UNAVAILABLE}
    return _FOREIGN, _listing(refused), _HARMLESS, _listing(IGNORED)


def _section(option: Option) -> str:
    return "\n".join(_lines(option))


def _lines(option: Option) -> Iterator[str]:
    yield f"### `{option.name}`\n"
    yield f"{option.doc}\n"
    yield f"- type: {option.kind.type_name}"
    yield f"- accepts: {option.kind.expected}"
    yield f"- default: `{option.default!r}`"
    if option.aliases:
        yield f"- also called: {_code(option.aliases)}"
    yield f"- since: {option.since}"
    yield ""


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _listing(reasons: Mapping[str, str]) -> str:
    """One line per reason, with every option it holds for."""
    names: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        names.setdefault(reason, []).append(name)
    return "".join(f"- {_code(group)}: {reason}.\n" for reason, group in names.items())


_WRITTEN_BY_HAND = "class ClientOptions("
"""What follows what stands by hand in ``option_types``."""
_ALL_BUT_ONE = '''\
class ClientOptions(TypedDict, total=False):
    """Every option of ``KafkaProducer`` but ``bootstrap_servers``."""
'''
_ALL = '''\

class ProducerOptions(ClientOptions, total=False):
    """Every option of ``KafkaProducer``; see ``docs/configuration.md``."""
'''

_IN_ANY_CASE = ("sasl_mechanism", "ssl_minimum_version")
"""Choices that are written in capitals, which a Literal of what is kept would refuse."""

_BY_WORDS = {
    "int": "int",
    "int or None": "int | None",
    "bool": "bool",
    "str": "str",
    "str or None": "str | None",
    "str or list of str": "str | Sequence[str | tuple[str, int]]",
    "str, path or None": "str | os.PathLike[str] | None",
    "str, callable or None": "str | Callable[[], str] | None",
    "ssl.SSLContext or None": "ssl.SSLContext | None",
    "callable or None": "Callable[..., Any] | None",
    "dict": "Mapping[str, Mapping[str, Any]]",
    "dict, str or None": "Mapping[str, str] | str | None",
    "list of objects": "Sequence[object] | None",
    "list of str, str or None": "Sequence[str] | str | None",
}


def types_page() -> str:
    """The module ``option_types``, to be formatted by ruff."""
    by_hand, _, _ = inspect.getsource(option_types).partition(_WRITTEN_BY_HAND)
    servers = OPTIONS["bootstrap_servers"]
    others = "".join(_field(option) for option in OPTIONS.values() if option is not servers)
    return by_hand + _ALL_BUT_ONE + others + _ALL + _field(servers)


def _field(option: Option) -> str:
    doc = option.doc.replace("`", "``").replace("\\", "\\\\")
    words = textwrap.fill(f'"""{doc}"""', 92, break_long_words=False, break_on_hyphens=False)
    names = [option.name, *(name for name in option.aliases if name.isidentifier())]
    typed = "".join(f"    {name}: {_type(option)}\n" for name in names)
    return f"\n{typed}{textwrap.indent(words, '    ')}\n"


def _type(option: Option) -> str:
    kind: Any = option.kind
    if isinstance(kind, SerializerPlugin):
        return f"{_literal(SERIALIZERS)} | Callable[[Any], Any] | SerializesObjects | None"
    if isinstance(kind, PartitionerPlugin):
        return f"{_literal(PARTITIONERS)} | Callable[..., int] | ChoosesPartitions | None"
    if isinstance(kind, Choice) and option.name not in _IN_ANY_CASE:
        return _literal(kind.meanings)
    if isinstance(kind, WholeNumber) and any(isinstance(value, float) for value in kind.instead):
        return "float"  # infinity for "no limit"
    return _BY_WORDS.get(kind.type_name, "Any")


def _literal(values: Iterable[Any]) -> str:
    return f"Literal[{', '.join(map(_quoted, values))}]"


def _quoted(value: Any) -> str:
    if not isinstance(value, str):
        return repr(value)
    text = value.upper() if value in ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl") else value
    return f'"{text}"'
