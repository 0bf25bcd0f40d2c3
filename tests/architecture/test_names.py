"""A file is named for the noun it holds: a name that fits anything says nothing."""

from __future__ import annotations

import pytest

from tests.architecture.sources import ROOT, files

EMPTY_WORDS = {"util", "utils", "helper", "helpers", "manager", "managers", "common", "misc"}


def test_no_file_or_folder_has_an_empty_name() -> None:
    parts = {
        (str(path.relative_to(ROOT)), word)
        for path in files(".py", ".pyi", ".pyx", ".pxd")
        for part in path.relative_to(ROOT).with_suffix("").parts
        for word in part.split("_")
    }
    assert not [name for name, word in parts if word in EMPTY_WORDS]


@pytest.mark.parametrize("folder", ["tests", "kprod"])
def test_every_folder_with_code_is_a_package(folder: str) -> None:
    folders = {path.parent for path in files(".py", folders=(folder,))}
    assert not [str(path) for path in folders if not (path / "__init__.py").exists()]
