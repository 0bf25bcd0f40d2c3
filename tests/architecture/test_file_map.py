"""docs/architecture.md names every module, and no module that is gone."""

from __future__ import annotations

import re
from pathlib import Path

from tests.architecture.sources import ROOT, files

FILE_MAP = re.compile(r"^## File map\n.*?^```text\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINE = re.compile(r"(?P<indent> *)(?P<name>\S+)(?: {2,}(?P<what>\S.*))?")
INDENT = 2


def test_every_module_is_on_the_file_map() -> None:
    assert not sorted(_modules() - _described().keys())


def test_nothing_on_the_file_map_is_gone() -> None:
    named = {path for path in _described() if not path.endswith("/")}
    assert not sorted(named - _modules())


def test_every_line_of_the_file_map_says_what_is_there() -> None:
    assert not [path for path, what in _described().items() if not what]


def test_every_folder_of_the_file_map_exists() -> None:
    folders = [path for path in _described() if path.endswith("/")]
    assert not [path for path in folders if not (ROOT / path).is_dir()]


def _modules() -> set[str]:
    """Every module that has a line of its own.

    A folder's line speaks for its ``__init__``, and that of a ``.py`` for the types beside it.
    """
    return {
        str(path.relative_to(ROOT))
        for path in files(".py", ".pyx", ".pxd", folders=("kprod", "kprod_ext"))
        if path.name != "__init__.py" and not _only_tells_types(path)
    }


def _only_tells_types(path: Path) -> bool:
    return path.suffix == ".pxd" and path.with_suffix(".py").exists()


def _described() -> dict[str, str]:
    """Path to description; a folder's path ends in a slash."""
    document = (ROOT / "docs" / "architecture.md").read_text()
    found = FILE_MAP.search(document)
    assert found, "docs/architecture.md has no file map"
    described: dict[str, str] = {}
    folders: list[str] = []
    for line in found[1].splitlines():
        parsed = LINE.fullmatch(line.rstrip())
        assert parsed, f"not a line of a file map: {line!r}"
        del folders[len(parsed["indent"]) // INDENT :]
        path = "".join(folders) + parsed["name"]
        assert path not in described, f"named twice: {path}"
        described[path] = parsed["what"] or ""
        folders.append(parsed["name"])
    return described
