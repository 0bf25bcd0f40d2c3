"""Prints every module with the first line of its docstring.

python -m tools.file_map
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("kprod", "kprod_ext")
SUFFIXES = (".py", ".pyx", ".pxd")
DOCSTRING = re.compile(r'\A(?:#[^\n]*\n)*\s*"""(.*?)"""', re.DOTALL)


def file_map() -> str:
    """The table of each folder, as Markdown."""
    folders: dict[Path, list[Path]] = {}
    sources = (path for package in PACKAGES for path in (ROOT / package).rglob("*"))
    for path in sorted(path for path in sources if path.suffix in SUFFIXES):
        if path.name != "__init__.py" and not _declares_a_module(path):
            folders.setdefault(path.parent, []).append(path)
    return "\n".join(_table(folder, members) for folder, members in sorted(folders.items()))


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
    print(file_map())
