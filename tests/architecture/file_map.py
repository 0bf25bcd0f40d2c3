"""The file map of the documentation, made from the first lines of the files' docstrings.

    python -m tests.architecture.file_map

writes the pages ``docs/file_map*.md``; a test compares them with the files.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.architecture.sources import ROOT, files

PAGES = ROOT / "docs"
PACKAGES = ("kprod", "kprod_ext")
LARGE = {"kprod/broker": "file_map_broker.md", "kprod/spark": "file_map_spark.md"}
"""Packages with a page of their own."""
INTRODUCTION = """\
# File map

Every module, in the words of its own first line; those of [kprod.broker](file_map_broker.md) and of
[kprod.spark](file_map_spark.md) are on pages of their own. Written by `make file-map`; do not edit
it here.
"""
OF_A_PACKAGE = """\
# File map of {package}

Every module of this package, in the words of its own first line; [all others](file_map.md).
Written by `make file-map`; do not edit it here.
"""
DOCSTRING = re.compile(r'\A(?:#[^\n]*\n)*\s*"""(.*?)"""', re.DOTALL)


def file_maps() -> dict[str, str]:
    """Each whole page, by the name of its file."""
    folders: dict[Path, list[Path]] = {}
    for path in files(".py", ".pyx", ".pxd", folders=PACKAGES):
        if path.name != "__init__.py" and not _declares_a_module(path):
            folders.setdefault(path.parent, []).append(path)
    pages = {"file_map.md": [INTRODUCTION]}
    for package, name in LARGE.items():
        pages[name] = [OF_A_PACKAGE.format(package=package.replace("/", "."))]
    for folder, members in sorted(folders.items()):
        pages[_page(folder)].append(_table(folder, members))
    return {name: "\n".join(parts) for name, parts in pages.items()}


def _page(folder: Path) -> str:
    """The name of the page that has the folder."""
    package = "/".join(folder.relative_to(ROOT).parts[:2])
    return LARGE.get(package, "file_map.md")


def _declares_a_module(path: Path) -> bool:
    """The ``.pxd`` of a ``.pyx`` tells other compiled modules what it holds."""
    sources = path.with_suffix(".pyx"), path.with_suffix(".py")
    return path.suffix == ".pxd" and any(source.exists() for source in sources)


def _table(folder: Path, members: list[Path]) -> str:
    rows = [f"| `{path.name}` | {first_line(path)} |\n" for path in members]
    title = f"## {folder.relative_to(ROOT)}\n\n{first_line(folder / '__init__.py')}\n"
    return f"{title}\n| file | |\n|---|---|\n{''.join(rows)}"


def first_line(path: Path) -> str:
    """The first sentence of the module's docstring, or its first line."""
    text = path.read_text()
    found = ast.get_docstring(ast.parse(text)) if path.suffix == ".py" else _docstring(text)
    assert found, f"{path} has no docstring"
    paragraph = " ".join(found.strip().split("\n\n")[0].split())
    return paragraph.split(". ")[0].replace("``", "`").replace("|", "\\|").rstrip(".")


def _docstring(text: str) -> str:
    found = DOCSTRING.match(text)
    return found[1] if found else ""


if __name__ == "__main__":
    for name, text in file_maps().items():
        (PAGES / name).write_text(text)
