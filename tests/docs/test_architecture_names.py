"""Every file, class and symbol that the architecture page and the glossary name is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT, files

PAGE = ROOT / "docs" / "architecture.md"
GLOSSARY = ROOT / "docs" / "glossary.md"
OURS = ("kprod", "kprod_ext")
MOST_LINES = 250
"""Of the architecture page: a newcomer reads it in ten minutes."""
FOLDERS = ("", "kprod", "kprod/buffer", "docs")
"""Where the paths that the page names may begin."""

BROUGHT = [
    *("CopyOnWriteMap", "hasRoomFor", "estimatedBytesWritten", "BufferPool", "RecordAccumulator"),
    *("ProducerBatch", "MemoryRecordsBuilder", "Sender", "NetworkClient", "Selector"),
    *("KafkaChannel", "InFlightRequests", "IncompleteBatches", "thunks", "Metadata", "Cluster"),
]
"""Words of Kafka's client that readers look for."""
FILE = re.compile(r"^([\w/.-]+\.(?:pyx|pxd|py|md|toml))(?:: (.*))?$")
NAME = re.compile(r"^[A-Za-z_][\w.]*(?:\(\))?$")


def _prose() -> str:
    """Both pages, without blocks of code and without the glossary's words of other clients."""
    text = re.sub(r"^```.*?^```$", "", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    ours = ("|".join(line.split("|")[2:]) for line in GLOSSARY.read_text().splitlines())
    return "\n".join([text, *ours])


def _named() -> list[str]:
    spans = re.findall(r"`([^`\n]+)`", _prose())
    return sorted({span for span in spans if FILE.match(span) or NAME.match(span)})


@cache
def _source(*extensions: str) -> str:
    folders = ("kprod", "kprod_ext", "tests", "benchmarks")
    return "\n".join(path.read_text() for path in files(*extensions, folders=folders))


@cache
def _of_class(name: str) -> str:
    """The files of kprod that define a class, and what is declared of it beside them."""
    texts = [path.read_text() for path in files(".py", ".pyx", ".pxd", folders=OURS)]
    return "\n".join(text for text in texts if _defines(text, name))


def _missing(span: str) -> Iterator[str]:
    """What ``span`` names and is not there."""
    if found := FILE.match(span):
        name, symbols = found.groups()
        path = next((p for f in FOLDERS if (p := ROOT / f / name).exists()), None)
        if path is None:
            yield f"there is no file {name}"
            return
        for symbol in (symbols or "").split(", "):
            yield from _missing_in(path, symbol)
        return
    first, *rest = span.removesuffix("()").split(".")
    if (ROOT / "kprod" / "/".join([first, *rest])).exists():
        return
    if first[0].isupper() and not first.isupper():
        if not _defines(_source(".py", ".pyx", ".pxd"), first):
            yield f"there is no class {first}"
    elif not re.search(rf"\b{first}\b", _source(".py", ".pyx", ".pxd")):
        yield f"nothing is called {first}"
    source = _of_class(first) if first[0].isupper() else _source(".py", ".pyx", ".pxd")
    for name in rest:
        if not re.search(rf"\b{name}\b", source):
            yield f"{span}: nothing is called {name}"


def _missing_in(path: Path, symbol: str) -> Iterator[str]:
    text = path.read_text()
    for name in filter(None, symbol.split(".")):
        if not _defines(text, name):
            yield f"{path.relative_to(ROOT)} does not define {name}"


def _defines(text: str, name: str) -> bool:
    """Whether it is defined there: a function, a class, a struct, a value."""
    defined = rf"^\s*(?:c?p?def|class|cdef class|cdef struct)\b[^(\n=]*\b{name}\b(?:\(|:|$)"
    assigned = rf"^\s*(?:self\.)?{name}\b(?::[^=\n]+)?\s*="
    return bool(re.search(f"{defined}|{assigned}", text, flags=re.MULTILINE))


@pytest.mark.parametrize("span", _named())
def test_what_the_page_names_is_there(span: str) -> None:
    assert list(_missing(span)) == []


@pytest.mark.parametrize("word", BROUGHT)
def test_the_glossary_has_the_words_of_other_clients(word: str) -> None:
    assert f"\n| `{word}` | " in GLOSSARY.read_text()


def test_the_page_is_read_in_ten_minutes() -> None:
    assert len(PAGE.read_text().splitlines()) <= MOST_LINES


def test_a_name_that_is_gone_would_be_seen() -> None:
    gone = ["sender/gone.py", "producer.py: _refuse_too_large", "MapThatIsGone.get"]
    gone += ["BrokerLink._changing"]  # which another class has
    assert all(list(_missing(span)) for span in gone)
    assert not list(_missing("producer.py: KafkaProducer"))
