"""Pages refer to existing public names, extras and files."""

from __future__ import annotations

import importlib
import re
import runpy
import tomllib
from collections.abc import Iterator

import pytest

from tests.architecture.sources import ROOT

DOCS = ROOT / "docs"
SECTION = re.compile(r"^## `([\w.]+)`\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
SECTIONS: dict[str, str] = dict(SECTION.findall((DOCS / "reference.md").read_text()))
IMPORT = re.compile(r"^\s*from (kprod[\w.]*) import (?:\(([^)]*)\)|([\w, ]+))", re.MULTILINE)


def listed(module: str) -> set[str]:
    """The names of a section: those described, and those after ``Also:``."""
    text = SECTIONS[module]
    if re.search(rf"^::: {re.escape(module)}$", text, re.MULTILINE):
        return set(importlib.import_module(module).__all__)  # the whole module
    described = re.findall(rf"^::: {re.escape(module)}\.(\w+)$", text, re.MULTILINE)
    also = re.search(r"^(?:Also: )?(`\w+`(?:,\s`\w+`)*)\.$", text, re.MULTILINE)
    return {*described, *(re.findall(r"\w+", also[1]) if also else ())}


@pytest.mark.parametrize("module", SECTIONS)
def test_a_section_lists_what_its_module_exports(module: str) -> None:
    assert listed(module) == set(importlib.import_module(module).__all__)


def imports_of_the_pages() -> Iterator[tuple[str, str, str]]:
    """Page, module and name of each import in user documentation and examples."""
    internal = ("architecture.md", "profile.md")
    pages = [page for page in DOCS.glob("*.md") if page.name not in internal]
    for page in [*pages, ROOT / "README.md", *(ROOT / "examples").rglob("*.py")]:
        for module, several, few in IMPORT.findall(page.read_text()):
            for name in re.findall(r"\w+(?: as \w+)?", several or few):
                yield page.name, module, name.partition(" ")[0]


def test_documentation_imports_only_public_names() -> None:
    public = {f"{module}.{name}" for module in SECTIONS for name in listed(module)}
    shown = {f"{module}.{name}": page for page, module, name in imports_of_the_pages()}
    assert len(shown) > 20
    assert not {name: page for name, page in shown.items() if name not in public | {*SECTIONS}}


README = (ROOT / "README.md").read_text()
LINK = re.compile(r"\]\(([^()\s#:]+)(?:#[^()\s]*)?\)")
"""A link to a file of the checkout; URLs have a colon."""


def test_the_extras_in_the_readme_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = re.findall(r"pip install '[./a-z]*kprod\[([a-z,]+)\]'", README)
    assert named
    for extra in ",".join(named).split(","):
        assert extra in extras["optional-dependencies"]


@pytest.mark.parametrize(
    "name", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md"]
)
def test_links_point_to_existing_files(name: str) -> None:
    page = ROOT / name
    assert not [to for to in LINK.findall(page.read_text()) if not (page.parent / to).exists()]


def test_the_package_index_page_links_to_the_repository() -> None:
    setup = runpy.run_path(str(ROOT / "setup.py"))
    there = "https://example.org/kprod"
    page = setup["with_absolute_links"](README, there, "v1")
    links = re.findall(r"\]\(([^()\s]+)\)", page)
    assert f"{there}/raw/v1/docs/plots/throughput.svg" in links
    assert f"{there}/blob/v1/docs/guarantees.md" in links
    assert all(link.startswith((f"{there}/", "#")) for link in links)
